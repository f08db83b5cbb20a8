/**
 * Seals for the owner of a private key (RFC 9180, base mode): DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. The sealing side
 * cannot open what it sealed. Messages of one context are numbered, and may be opened in any order.
 *
 *     ephemeral key ──▶ shared secret ─┬─▶ key and nonce ──▶ one sealed text for each number
 *                                      └─▶ exporter ──▶ other keys, each by its name
 */
import { Buffer } from 'node:buffer'
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  type KeyObject,
} from 'node:crypto'

/** How much longer a sealed text is than its plain text. */
export const TAG_BYTES = 16
/** The length of every key here, except for the cipher that only the test vectors use. */
export const KEY_BYTES = 32
/** Two ciphers of the RFC: the one that we use, and the one of its test vectors for X25519. */
const AES_256_GCM = { id: 0x0002, name: 'aes-256-gcm', keyBytes: 32 } as const
export const AES_128_GCM = { id: 0x0001, name: 'aes-128-gcm', keyBytes: 16 } as const
type Aead = typeof AES_256_GCM | typeof AES_128_GCM

const NONCE_BYTES = 12
const NO_NONCE = Buffer.alloc(NONCE_BYTES)
const KEM_SUITE = Buffer.concat([Buffer.from('KEM'), u16(0x0020)])
const VERSION = Buffer.from('HPKE-v1')
const NONE = Buffer.alloc(0)
const BASE_MODE = Buffer.from([0])
/** The DER prefix of the 32 bytes of a public X25519 key (RFC 8410). */
const PUBLIC_DER = Buffer.from('302a300506032b656e032100', 'hex')

export interface Sealer {
  /** Use each number only once, since two texts under one number would reveal each other. */
  seal(number: number, aad: Uint8Array, text: Uint8Array): Uint8Array
}

export interface Opener {
  /** @throws {Error} if it was sealed differently, or changed. */
  open(number: number, aad: Uint8Array, sealed: Uint8Array): Uint8Array
}

/** RFC 9180 section 5.3: 32 bytes that both ends share, different for each `context`. */
interface Exporter {
  export(context: Uint8Array): Uint8Array
}

/** Made by {@link sealFor}. */
interface SealingContext extends Sealer, Exporter {
  /** What the owner of the key needs to open it: 32 bytes. */
  readonly enc: Uint8Array
}

/** Made by {@link openWith}. */
export interface OpeningContext extends Opener, Exporter {}

/** `publicKey` is 32 bytes. The last two parameters are for the RFC's test vectors. Throws if the key is invalid. */
export function sealFor(
  publicKey: Uint8Array,
  info: Uint8Array,
  ephemeral: KeyObject = newPrivateKey(),
  aead: Aead = AES_256_GCM,
): SealingContext {
  const enc = publicBytes(ephemeral)
  const { key, nonce, exporter } = schedule(sharedSecret(ephemeral, publicKey, enc, publicKey), info, aead)
  return { enc, ...sealerOf(key, nonce, aead), export: exporter }
}

export function openWith(
  privateKey: KeyObject,
  enc: Uint8Array,
  info: Uint8Array,
  aead: Aead = AES_256_GCM,
): OpeningContext {
  const { key, nonce, exporter } = schedule(sharedSecret(privateKey, enc, enc, publicBytes(privateKey)), info, aead)
  return { ...openerOf(key, nonce, aead), export: exporter }
}

/** `key` must be used for nothing else, ever. Then the numbers alone suffice as nonces. */
export function sealerOf(key: Uint8Array, nonce: Buffer = NO_NONCE, aead: Aead = AES_256_GCM): Sealer {
  return {
    seal(number, aad, text) {
      const cipher = createCipheriv(aead.name, key, nonceOf(nonce, number)).setAAD(aad)
      return Buffer.concat([cipher.update(text), cipher.final(), cipher.getAuthTag()])
    },
  }
}

/** Opens what {@link sealerOf} sealed. */
export function openerOf(key: Uint8Array, nonce: Buffer = NO_NONCE, aead: Aead = AES_256_GCM): Opener {
  return {
    open(number, aad, sealed) {
      const end = sealed.length - TAG_BYTES
      const decipher = createDecipheriv(aead.name, key, nonceOf(nonce, number), { authTagLength: TAG_BYTES })
      decipher.setAAD(aad).setAuthTag(sealed.subarray(end))
      return Buffer.concat([decipher.update(sealed.subarray(0, end)), decipher.final()])
    },
  }
}

export function newPrivateKey(): KeyObject {
  return generateKeyPairSync('x25519').privateKey
}

/** The 32 bytes of the public key. */
export function publicBytes(key: KeyObject): Buffer {
  return createPublicKey(key as never)
    .export({ format: 'der', type: 'spki' })
    .subarray(PUBLIC_DER.length)
}

/** RFC 9180 section 4.1. OpenSSL refuses a peer's key of small order, which would make the secret predictable. */
function sharedSecret(privateKey: KeyObject, peer: Uint8Array, enc: Uint8Array, receiver: Uint8Array): Buffer {
  const publicKey = createPublicKey({ key: Buffer.concat([PUBLIC_DER, peer]), format: 'der', type: 'spki' })
  const secret = labeledExtract(KEM_SUITE, NONE, 'eae_prk', diffieHellman({ privateKey, publicKey }))
  return labeledExpand(KEM_SUITE, secret, 'shared_secret', Buffer.concat([enc, receiver]), KEY_BYTES)
}

/** RFC 9180 section 5.1. */
function schedule(
  secret: Buffer,
  info: Uint8Array,
  aead: Aead,
): { key: Buffer; nonce: Buffer; exporter: Exporter['export'] } {
  const suite = Buffer.concat([Buffer.from('HPKE'), u16(0x0020), u16(0x0001), u16(aead.id)])
  const id = labeledExtract(suite, NONE, 'psk_id_hash', NONE)
  const context = Buffer.concat([BASE_MODE, id, labeledExtract(suite, NONE, 'info_hash', info)])
  const made = labeledExtract(suite, secret, 'secret', NONE)
  const exported = labeledExpand(suite, made, 'exp', context, KEY_BYTES)
  return {
    key: labeledExpand(suite, made, 'key', context, aead.keyBytes),
    nonce: labeledExpand(suite, made, 'base_nonce', context, NONCE_BYTES),
    exporter: context => labeledExpand(suite, exported, 'sec', context, KEY_BYTES),
  }
}

function nonceOf(base: Buffer, number: number): Buffer {
  const nonce = Buffer.from(base)
  nonce.writeUInt32BE((nonce.readUInt32BE(NONCE_BYTES - 4) ^ number) >>> 0, NONCE_BYTES - 4)
  return nonce
}

function labeledExtract(suite: Buffer, salt: Uint8Array, label: string, key: Uint8Array): Buffer {
  return createHmac('sha256', salt).update(VERSION).update(suite).update(label).update(key).digest()
}

/** One block of HKDF-Expand (RFC 5869) is enough for everything here. */
function labeledExpand(suite: Buffer, key: Uint8Array, label: string, info: Uint8Array, bytes: number): Buffer {
  const hmac = createHmac('sha256', key).update(u16(bytes)).update(VERSION).update(suite).update(label).update(info)
  return hmac
    .update(Buffer.from([1]))
    .digest()
    .subarray(0, bytes)
}

function u16(number: number): Buffer {
  return Buffer.from([number >> 8, number & 0xff])
}
