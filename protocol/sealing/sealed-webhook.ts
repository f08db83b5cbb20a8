/**
 * A webhook that a server keeps sealed for the key of its runtime's client: head and body in parts, each sealed under its
 * number, the head under 0. What stands in clear beside them is bound to them.
 */
import { Buffer } from 'node:buffer'
import { createHash, type KeyObject } from 'node:crypto'
import { type Opener, openWith, publicBytes, type Sealer, sealFor } from './hpke.ts'

const INFO = Buffer.from('sallyport inbox 1')

/** What stands in clear, and cannot be changed without being noticed. */
export interface SealedIdentity {
  readonly runtime: string
  readonly id: string
  readonly lane: string
  /** Ms since 1970. */
  readonly received: number
}

/** Fields of a sealed delivery besides those that every delivery has. */
export const SEALED_FIELDS = {
  /** Which key opens it. */
  key: 'sallyport-inbox-key',
  enc: 'sallyport-inbox-enc',
  lane: 'sallyport-inbox-lane',
} as const

/** In front of each part of a sealed delivery: its length, big endian. */
export const LENGTH_BYTES = 4
/** Longest part that is opened: a head may be a little longer than the parts of a body. */
export const MAX_PART_BYTES = 1024 * 1024

/** Names a key by its public half. */
export function keyIdOf(publicKey: Uint8Array): string {
  return createHash('sha256').update(publicKey).digest('hex').slice(0, 16)
}

export function sealerFor(publicKey: Uint8Array): Sealer {
  return sealFor(publicKey, INFO)
}

export function openerWith(privateKey: KeyObject, enc: Uint8Array): Opener {
  return openWith(privateKey, enc, INFO)
}

/** The additional data of part `n`. */
export function partAad({ runtime, id, lane, received }: SealedIdentity, n: number): Uint8Array {
  return Buffer.from(JSON.stringify([runtime, id, lane, received, n]))
}

/** Private keys by the name of each: the first is the one to seal for. */
export class InboxKeys {
  readonly #keys: ReadonlyMap<string, KeyObject>
  /** What a hello says: the public half of the first, base64url. */
  readonly announced: string

  constructor(keys: readonly [KeyObject, ...KeyObject[]]) {
    this.#keys = new Map(keys.map(key => [keyIdOf(publicBytes(key)), key]))
    this.announced = publicBytes(keys[0]).toString('base64url')
  }

  find(id: string): KeyObject | undefined {
    return this.#keys.get(id)
  }
}
