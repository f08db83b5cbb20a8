/**
 * MACs (HMAC-SHA256) over what is in the store, with secrets that are not. So somebody with write access to the store cannot add
 * webhooks or rules that a server accepts.
 *
 * A webhook has one MAC per part, as `mac` in its `caller`. The MAC of the head, part 0, also covers the columns in `COVERED`.
 * Rules have theirs as `mac` in their JSON. Tables need no new column, so servers that use no MACs can read everything.
 */
import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto'
import { detached } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import type { Message, NewMessage } from './store.ts'

/** More than any rotation needs. */
const MAX_SECRETS = 16
export const MAX_SECRETS_BYTES = 16 * 1024
const MIN_SECRET_BYTES = 32

/**
 * The columns that the MAC of a head covers. The order must never change. The others change while a webhook is in the store;
 * changing them can delay, end or repeat a webhook, but not forge one.
 */
const COVERED = ['id', 'runtime', 'lane', 'route', 'why', 'received', 'bytes', 'parts', 'key', 'enc'] as const

type Kept = Pick<Message, (typeof COVERED)[number] | 'caller'>

/** Secrets, one a line, hex or base64. The first makes MACs, all verify. Throws an Error that never quotes a secret. */
export function parseSecrets(text: string): KeyObject[] {
  const lines = text.split('\n').map(line => line.trim())
  const secrets = lines.filter(line => line !== '').map((line, i) => secretOf(line, i + 1))
  if (secrets.length === 0) throw new Error('it has no secret')
  if (secrets.length > MAX_SECRETS) throw new Error(`it has more than ${MAX_SECRETS} secrets`)
  return secrets
}

function secretOf(line: string, nr: number): KeyObject {
  const isHex = /^([\da-f]{2})+$/i.test(line)
  if (!isHex && !/^[\w+/-]+={0,2}$/.test(line)) throw new Error(`secret ${nr} is neither hex nor base64`)
  const bytes = Buffer.from(line, isHex ? 'hex' : 'base64')
  if (bytes.length < MIN_SECRET_BYTES) throw new Error(`secret ${nr} has fewer than ${MIN_SECRET_BYTES} bytes`)
  return createSecretKey(bytes)
}

export interface MacOptions {
  readonly file: string
  /** Webhooks without a MAC are accepted, too. */
  readonly optional: boolean
}

export class InboxMac {
  readonly #options: MacOptions
  readonly #logger: Logger
  #secrets: readonly KeyObject[]
  readonly #watch: FilesWatch
  readonly #problem = new LastProblem()
  /** Called when the secrets have changed. */
  onChange: (() => void) | undefined

  /** Rejects if the file cannot be used. It is read again when it changes; if it is then invalid, the old secrets stay. */
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
    const changed = () => detached(logger, 'reading the MAC secrets of the inbox again failed', this.#reload())
    this.#watch = watchFiles([options.file], logger, changed)
  }

  async #reload(): Promise<void> {
    const { file } = this.#options
    try {
      const secrets = await readSecrets(file)
      const isSame = secrets.length === this.#secrets.length && secrets.every((one, i) => one.equals(this.#secrets[i]!))
      this.#problem.clear()
      if (isSame) return
      this.#secrets = secrets
      this.#logger.info({ file }, 'read the MAC secrets of the inbox again')
      this.onChange?.()
    } catch (error) {
      const err = { message: (error as Error).message }
      if (this.#problem.isNew(error, this.#watch.version))
        this.#logger.error({ file, err }, 'the file of the MAC secrets of the inbox is invalid; the old ones stay')
    }
  }

  /** The MAC of part `n` of a body. */
  partMac(message: Pick<Message, 'runtime' | 'id'>, n: number, bytes: Uint8Array): string {
    return this.#mac(partFields(message, n), bytes)
  }

  /** The message with the MACs of its parts. `macs` are those of the parts that are already in the store. */
  addMacs(message: NewMessage, macs: readonly string[], head: Uint8Array, rest: Uint8Array): NewMessage {
    const caller = JSON.parse(message.caller) as object
    const mac = [this.#mac(headFields(message, caller), head), ...macs.slice(1)]
    if (rest.length > 0) mac.push(this.partMac(message, message.parts - 1, rest))
    return { ...message, caller: JSON.stringify({ ...caller, mac }) }
  }

  /** Whether a server that has one of our secrets stored these bytes as part `n` of this message. */
  verifies(message: Kept, n: number, bytes: Uint8Array): boolean {
    const { mac, ...caller } = parseObject(message.caller)
    if (mac === undefined && this.#options.optional) return true
    const given = Array.isArray(mac) ? (mac[n] as unknown) : undefined
    return this.#isGood(given, n === 0 ? headFields(message, caller) : partFields(message, n), bytes)
  }

  /** The rules of a runtime, with their MAC. `at` is in ms since 1970. */
  addRulesMac(runtime: string, rules: string, at: number): string {
    const announced = parseObject(rules)
    return JSON.stringify({ ...announced, at, mac: this.#mac(['rules', runtime, announced, at]) })
  }

  /** The rules without their MAC, and when they were announced. `undefined` if the MAC is invalid. */
  verifiedRules(runtime: string, stored: string): { readonly rules: string; readonly at: number } | undefined {
    const { at, mac, ...announced } = parseObject(stored)
    const isGood = this.#isGood(mac, ['rules', runtime, announced, at])
    return isGood ? { rules: JSON.stringify(announced), at: Number(at) } : undefined
  }

  #mac(what: readonly unknown[], bytes?: Uint8Array): string {
    return hmacOf(this.#secrets[0]!, what, bytes).toString('base64url')
  }

  #isGood(given: unknown, what: readonly unknown[], bytes?: Uint8Array): boolean {
    const mac = Buffer.from(typeof given === 'string' ? given : '', 'base64url')
    try {
      return this.#secrets.some(secret => {
        const good = hmacOf(secret, what, bytes)
        return mac.length === good.length && timingSafeEqual(mac, good)
      })
    } catch {
      // Older versions of Node throw if the JSON is nested too deeply for the stack. No server wrote that.
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

function headFields(message: Kept, caller: object): readonly unknown[] {
  return ['head', ...COVERED.map(name => message[name]), caller]
}

function partFields({ runtime, id }: Pick<Message, 'runtime' | 'id'>, n: number): readonly unknown[] {
  return ['part', runtime, id, n]
}

/** The JSON contains no line break, so it is unambiguous where the bytes begin. */
function hmacOf(secret: KeyObject, what: readonly unknown[], bytes: Uint8Array = new Uint8Array()): Buffer {
  return createHmac('sha256', secret).update(JSON.stringify(what)).update('\n').update(bytes).digest()
}

/** The text may be forged: anything but an object counts as an empty one. */
function parseObject(text: string): Record<string, unknown> {
  try {
    return { ...(JSON.parse(text) as object) }
  } catch {
    return {}
  }
}
