/**
 * MACs (HMAC-SHA256) over what stands in the store, by secrets that do not stand there: whoever writes to the store can then put in no
 * webhook and no rules that a server believes.
 *
 * A webhook has one for each of its parts, as `mac` in its `caller`; that of its head, part 0, is over what stands beside it, too. Rules
 * have one as `mac` in their text. So tables are as they were, and servers that ask for no MAC read what has one.
 */
import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import type { Message, NewMessage } from './store.ts'

/** More than any rotation needs. */
const MAX_SECRETS = 16
export const MAX_SECRETS_BYTES = 16 * 1024
const LEAST_BYTES = 32

/**
 * What of a message the MAC of its head is over, in this order for good. What is missing changes in the life of a webhook: to write that
 * is to delay, end or repeat one.
 */
const COVERED = ['id', 'runtime', 'lane', 'route', 'why', 'received', 'bytes', 'parts', 'key', 'enc'] as const

type Kept = Pick<Message, (typeof COVERED)[number] | 'caller'>

/** Secrets, one a line, hex or base64: the first makes, all verify. Throws an Error that never quotes one. */
export function parseSecrets(text: string): KeyObject[] {
  const lines = text.split('\n').map(line => line.trim())
  const secrets = lines.filter(line => line !== '').map((line, i) => secretOf(line, i + 1))
  if (secrets.length === 0) throw new Error('there is no secret in it')
  if (secrets.length > MAX_SECRETS) throw new Error(`there are over ${MAX_SECRETS} secrets in it`)
  return secrets
}

function secretOf(line: string, nr: number): KeyObject {
  const isHex = /^([\da-f]{2})+$/i.test(line)
  if (!isHex && !/^[\w+/-]+={0,2}$/.test(line)) throw new Error(`secret ${nr} is neither hex nor base64`)
  const bytes = Buffer.from(line, isHex ? 'hex' : 'base64')
  if (bytes.length < LEAST_BYTES) throw new Error(`secret ${nr} has under ${LEAST_BYTES} bytes`)
  return createSecretKey(bytes)
}

export interface MacOptions {
  readonly file: string
  /** Webhooks that have none are believed, too. */
  readonly optional: boolean
}

export class InboxMac {
  readonly #options: MacOptions
  readonly #logger: Logger
  #secrets: readonly KeyObject[]
  readonly #watch: FilesWatch

  /** Rejects if the file cannot be used. It is read again when it changes; a bad one keeps the secrets from before. */
  static async open(options: MacOptions, logger: Logger): Promise<InboxMac> {
    try {
      return new InboxMac(options, logger, await readSecrets(options.file))
    } catch (error) {
      throw new TypeError(`inbox.mac.file: ${(error as Error).message}`, { cause: error })
    }
  }

  private constructor(options: MacOptions, logger: Logger, secrets: readonly KeyObject[]) {
    this.#options = options
    this.#logger = logger
    this.#secrets = secrets
    const changed = () => detached(logger, 'changed secrets of an inbox could not be read', this.#read())
    this.#watch = watchFiles([options.file], logger, changed)
  }

  async #read(): Promise<void> {
    const { file } = this.#options
    try {
      const secrets = await readSecrets(file)
      const isSame = secrets.length === this.#secrets.length && secrets.every((one, i) => one.equals(this.#secrets[i]!))
      if (isSame) return
      this.#secrets = secrets
      this.#logger.info({ file }, 'secrets of the inbox read')
    } catch (error) {
      const err = { message: (error as Error).message }
      this.#logger.error({ file, err }, 'the file with the secrets of the inbox is bad; those from before stay')
    }
  }

  /** Of part `n` of a body. */
  ofPart(message: Pick<Message, 'runtime' | 'id'>, n: number, bytes: Uint8Array): string {
    return this.#made(partOf(message, n), bytes)
  }

  /** The message with the MACs of its parts. `macs`: of those that are in the store. */
  prove(message: NewMessage, macs: readonly string[], head: Uint8Array, rest: Uint8Array): NewMessage {
    const caller = JSON.parse(message.caller) as object
    const mac = [this.#made(headOf(message, caller), head), ...macs.slice(1)]
    if (rest.length > 0) mac.push(this.ofPart(message, message.parts - 1, rest))
    return { ...message, caller: JSON.stringify({ ...caller, mac }) }
  }

  /** Whether a server that has one of our secrets stored these bytes as part `n` of this message. */
  proves(message: Kept, n: number, bytes: Uint8Array): boolean {
    const { mac, ...caller } = objectIn(message.caller)
    if (mac === undefined && this.#options.optional) return true
    const given = Array.isArray(mac) ? (mac[n] as unknown) : undefined
    return this.#isGood(given, n === 0 ? headOf(message, caller) : partOf(message, n), bytes)
  }

  /** What a runtime announced, as it is stored. `at`: ms since 1970. */
  proveRules(runtime: string, rules: string, at: number): string {
    const announced = objectIn(rules)
    return JSON.stringify({ ...announced, at, mac: this.#made(['rules', runtime, announced, at]) })
  }

  /** What it announced, after `since`; undefined: nobody who has one of our secrets said so. */
  provenRules(runtime: string, stored: string, since: number): string | undefined {
    const { at, mac, ...announced } = objectIn(stored)
    const isGood = this.#isGood(mac, ['rules', runtime, announced, at]) && Number(at) >= since
    return isGood ? JSON.stringify(announced) : undefined
  }

  #made(what: readonly unknown[], bytes?: Uint8Array): string {
    return make(this.#secrets[0]!, what, bytes).toString('base64url')
  }

  #isGood(given: unknown, what: readonly unknown[], bytes?: Uint8Array): boolean {
    const mac = Buffer.from(typeof given === 'string' ? given : '', 'base64url')
    try {
      return this.#secrets.some(secret => {
        const good = make(secret, what, bytes)
        return mac.length === good.length && timingSafeEqual(mac, good)
      })
    } catch {
      // Older Node throws where something is nested deeper than its stack: none of us wrote that.
      return false
    }
  }

  close(): void {
    this.#watch.close()
  }
}

async function readSecrets(file: string): Promise<KeyObject[]> {
  return parseSecrets(String(await readPlain(file, MAX_SECRETS_BYTES)))
}

/** What stands of a message beside its bytes. */
function headOf(message: Kept, caller: object): readonly unknown[] {
  return ['head', ...COVERED.map(name => message[name]), caller]
}

function partOf({ runtime, id }: Pick<Message, 'runtime' | 'id'>, n: number): readonly unknown[] {
  return ['part', runtime, id, n]
}

/** JSON has no line break, so it is plain where the bytes begin. */
function make(secret: KeyObject, what: readonly unknown[], bytes: Uint8Array = new Uint8Array()): Buffer {
  return createHmac('sha256', secret).update(JSON.stringify(what)).update('\n').update(bytes).digest()
}

/** Somebody else may have written it: what is no object has nothing in it. */
function objectIn(text: string): Record<string, unknown> {
  try {
    return { ...(JSON.parse(text) as object) }
  } catch {
    return {}
  }
}
