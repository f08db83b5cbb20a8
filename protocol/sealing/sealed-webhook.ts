/**
 * A webhook that a server keeps sealed for the key of its runtime's client. Head and body are sealed in parts, each under its
 * number, with the head under 0. The fields next to them that are not sealed are bound to them.
 *
 * In the first form, each webhook has its own HPKE context. In the second, several webhooks share a context, which seals nothing
 * itself: webhook i is sealed with the key that the context exports for i.
 */
import { Buffer } from 'node:buffer'
import { createHash, type KeyObject } from 'node:crypto'
import {
  KEY_BYTES,
  type Opener,
  type OpeningContext,
  openerOf,
  openWith,
  publicBytes,
  type Sealer,
  sealerOf,
  sealFor,
} from './hpke.ts'

const INFO = Buffer.from('sallyport inbox 1')
const SHARED_INFO = Buffer.from('sallyport inbox 2')
/** The format of {@link SealedKey.enc}. */
const ENC = /^([A-Za-z0-9_-]{43})(?:\.(\d{1,9}))?$/

/** What is not sealed, but cannot be changed unnoticed. */
export interface SealedIdentity {
  readonly runtime: string
  readonly id: string
  readonly lane: string
  /** Ms since 1970. */
  readonly received: number
}

/** Fields of a sealed delivery in addition to those of every delivery. */
export const SEALED_FIELDS = {
  /** Which key opens it. */
  key: 'sallyport-inbox-key',
  enc: 'sallyport-inbox-enc',
  lane: 'sallyport-inbox-lane',
} as const

/** Each part of a sealed delivery is preceded by its length, big endian. */
export const LENGTH_BYTES = 4
/** The longest part that is opened. A head may be slightly longer than the parts of a body. */
export const MAX_PART_BYTES = 1024 * 1024

/** The name of a key, from its public half. */
export function keyIdOf(publicKey: Uint8Array): string {
  return createHash('sha256').update(publicKey).digest('hex').slice(0, 16)
}

/** Seals one webhook. */
export interface SealedKey extends Sealer {
  /** What the owner of the key needs to open it, base64url. In the second form, the number of the webhook follows. */
  readonly enc: string
}

/** The first form. Throws if `publicKey` is invalid. */
export function sealerFor(publicKey: Uint8Array): SealedKey {
  const { enc, seal } = sealFor(publicKey, INFO)
  return { enc: base64url(enc), seal }
}

/** The second form, for `count` webhooks. Throws if `publicKey` is invalid. */
export class Sealers {
  readonly #enc: string
  /** Keys that have not been taken yet. A key is erased here when it is taken, so that nothing here opens what it seals. */
  readonly #keys: Buffer
  #taken = 0

  constructor(publicKey: Uint8Array, count: number) {
    const context = sealFor(publicKey, SHARED_INFO)
    this.#enc = base64url(context.enc)
    this.#keys = Buffer.alloc(count * KEY_BYTES)
    for (let i = 0; i < count; i++) this.#keys.set(context.export(u32(i)), i * KEY_BYTES)
  }

  /** Returns undefined once all are taken. */
  take(): SealedKey | undefined {
    const i = this.#taken
    const place = this.#keys.subarray(i * KEY_BYTES, (i + 1) * KEY_BYTES)
    if (place.length === 0) return undefined
    this.#taken++
    const key = new Uint8Array(place)
    place.fill(0)
    return { enc: `${this.#enc}.${i}`, ...sealerOf(key) }
  }
}

/** How many key agreements are kept: enough for webhooks from as many lanes as are delivered at a time, and more. */
const MOST_AGREEMENTS = 64

/** A private key, and the agreements made with it. */
export class OpeningKey {
  readonly #privateKey: KeyObject
  readonly #open: typeof openWith
  /** Agreements of the second form. One costs as much as everything else about opening a webhook. The oldest is dropped first. */
  readonly #agreements = new Map<string, OpeningContext>()

  /** `open` is for tests, which count its calls. */
  constructor(privateKey: KeyObject, open: typeof openWith = openWith) {
    this.#privateKey = privateKey
    this.#open = open
  }

  /** Opens either form, depending on `enc`. Throws if it is neither. */
  opener(enc: string): Opener {
    const [, point, i] = ENC.exec(enc) ?? []
    if (point === undefined) throw new Error('it says nothing by which it could be opened')
    if (i === undefined) return this.#agree(point, INFO)
    return openerOf(this.#shared(point).export(u32(Number(i))))
  }

  #shared(point: string): OpeningContext {
    const known = this.#agreements.get(point)
    if (known !== undefined) return known
    const agreed = this.#agree(point, SHARED_INFO)
    const [oldest] = this.#agreements.keys()
    if (this.#agreements.size === MOST_AGREEMENTS) this.#agreements.delete(oldest!)
    this.#agreements.set(point, agreed)
    return agreed
  }

  #agree(point: string, info: Uint8Array): OpeningContext {
    return this.#open(this.#privateKey, Buffer.from(point, 'base64url'), info)
  }
}

function base64url(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64url')
}

function u32(number: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(number)
  return bytes
}

/** The additional data of part `n`. */
export function partAad({ runtime, id, lane, received }: SealedIdentity, n: number): Uint8Array {
  return Buffer.from(JSON.stringify([runtime, id, lane, received, n]))
}

/** Private keys by name. The first is the one to seal for. */
export class InboxKeys {
  readonly #keys: ReadonlyMap<string, OpeningKey>
  /** What a hello announces: the public half of the first key, base64url. */
  readonly announced: string

  constructor(keys: readonly [KeyObject, ...KeyObject[]]) {
    this.#keys = new Map(keys.map(key => [keyIdOf(publicBytes(key)), new OpeningKey(key)]))
    this.announced = publicBytes(keys[0]).toString('base64url')
  }

  find(id: string): OpeningKey | undefined {
    return this.#keys.get(id)
  }
}
