/** The rules that clients announce: which webhooks of their runtimes are stored, and for which key these are sealed. */
import { Buffer } from 'node:buffer'
import { createHash, createHmac } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import type { InboxRule } from '../../protocol/wire/control.ts'
import { AgedMap } from '../aged-map.ts'
import type { InboxMac } from './mac.ts'
import { type Rule, Rules } from './rules.ts'
import { ClientSealer } from './sealing.ts'
import type { Contents, InboxStore } from './store.ts'

/** How long the rules of a runtime that does not come back are kept. */
export const RULES_MS: number = 30 * 86_400_000
/** Unchanged rules are written again only after this time. */
const RULES_FRESH_MS = 86_400_000
/** Those whose rules were written longest ago are forgotten first. */
const MAX_RUNTIMES = 50_000

interface AnnouncedRulesParts {
  readonly store: InboxStore
  /** `undefined` if rules in the store are trusted without one. */
  readonly mac: InboxMac | undefined
  readonly maxAgeMs: number
  /** Webhooks of clients without a key may be stored unencrypted. */
  readonly plaintext: boolean
  readonly logger: Logger
  readonly maxRuntimes?: number | undefined
  /** Ms since 1970. */
  readonly now: () => number
  /** Rules that were announced before that are too old to be kept. */
  since(): number
  /** Whether the runtime has a session, at any server. */
  isLive(runtime: string): boolean
  /** Whether it has one at this server. */
  isHere(runtime: string): boolean
  /** Whether what the instance announced here may have been overtaken. `unknown` if the directory must be asked. */
  isOvertaken(by: { readonly runtime: string; readonly instance: string }): boolean | 'unknown'
  /** Asks the directory. */
  look(runtime: string): void
}

/** A runtime's rules, as JSON in the store. */
interface StoredRules {
  readonly key?: string
  readonly shared?: boolean
  readonly rules: InboxRule[]
  /** See {@link digestOf}. Absent if the rules have no secrets. */
  readonly secrets?: string
  /** The instance that announced them. See {@link nameOf}. */
  readonly by?: string
  /** The runtime's own hosts, as its token names them. */
  readonly hosts?: readonly string[]
}

type StoredRow = Contents['rules'][number]

interface VerifiedRow {
  /** As they are in the store. */
  readonly stored: string
  /** `undefined` if they have no valid MAC. */
  readonly proven: ReturnType<InboxMac['verifiedRules']>
}

interface RuntimeRules {
  readonly rules: () => Rules
  readonly hosts: () => readonly string[]
  /** Returns `undefined` if webhooks are stored unencrypted. */
  readonly sealer: () => ClientSealer | undefined
  /** As stored. */
  readonly text: string
  /** A client announced them here. Otherwise they come from the store. */
  readonly announced: boolean
  /** The instance of that client. */
  readonly instance?: string | undefined
  /** The last rules that were announced here, which have their secrets, by whom, and what of them is stored. */
  readonly own?:
    | { readonly rules: () => Rules; readonly instance: string | undefined; readonly text: string }
    | undefined
  /** When they were announced, or written since. */
  readonly at: number
  /** The store has them. */
  saved: boolean
}

export class AnnouncedRules {
  readonly #parts: AnnouncedRulesParts
  readonly #maxRuntimes: number
  /** Those that were written longest ago come first. */
  readonly #byRuntime = new AgedMap<RuntimeRules>()
  /** Stored rules without a valid MAC, or too old ones, by runtime. */
  #unproven = new Map<string, StoredRow>()
  /** What verifying the stored rules said, by runtime. */
  #verified = new Map<string, VerifiedRow>()

  constructor(parts: AnnouncedRulesParts) {
    this.#parts = parts
    this.#maxRuntimes = parts.maxRuntimes ?? MAX_RUNTIMES
  }

  /** Runtimes whose stored rules are ignored. */
  get unproven(): number {
    return this.#unproven.size
  }

  /** The rule that stores the request, and how. `undefined` if there is none. */
  find(request: HttpRequest): { readonly rule: Rule; readonly sealer: ClientSealer | undefined } | undefined {
    const known = this.#byRuntime.get(request.runtime!)
    if (known === undefined) return undefined
    try {
      // Webhooks for a host of its own are kept only if the runtime's token names the host, whatever the directory says.
      const isOwnHost = request.ownHost === undefined || known.hosts().includes(request.ownHost)
      if (!isOwnHost) return undefined
      const rule = known.rules().find(request)
      return rule && { rule, sealer: known.sealer() }
    } catch (error) {
      this.#logUnreadable(request.runtime!, error)
      return undefined
    }
  }

  /** The instance whose rules hold. `undefined` if they come from the store. */
  publisherOf(runtime: string): string | undefined {
    return this.#byRuntime.get(runtime)?.instance
  }

  /**
   * Whether those of another instance have replaced the rules that this one announced here, or are there although it announced none that can
   * be used. Those that it announced elsewhere may be newer.
   */
  isReplaced(runtime: string, instance: string, announced: readonly InboxRule[], key: string | undefined): boolean {
    const known = this.#byRuntime.get(runtime)
    if (known === undefined) return false
    const { own, rules } = known
    const hasNone = () => announced.length === 0 || this.#sealerOf(key, false).problem !== undefined
    if (own?.instance === instance ? own.rules === rules : !hasNone()) return false
    return (JSON.parse(known.text) as StoredRules).by !== nameOf(instance)
  }

  /**
   * Sets the rules that the client of a runtime announces. An empty list withdraws earlier ones, and is stored like any other, so that
   * it is known which is newer. `shared` is as in {@link ClientSealer}. `hosts` are the runtime's own, as its token names them. `active` is
   * the active instance, if that is another one. A standby changes nothing, since it may be of another version. False if it was ignored.
   */
  publish(
    runtime: string,
    announced: readonly InboxRule[],
    key: string | undefined,
    shared = false,
    hosts: readonly string[] = [],
    { instance, active }: { readonly instance?: string; readonly active?: string | undefined } = {},
  ): boolean {
    const { sealer, problem } = this.#sealerOf(key, shared)
    if (problem !== undefined && announced.length > 0) {
      this.#parts.logger.error({ runtime, reason: problem }, 'webhooks of a runtime are not stored')
    }
    const rules = problem === undefined ? announced : []
    const known = this.#byRuntime.get(runtime)
    // While the store is not open, it may hold earlier rules.
    if (rules.length === 0 && known === undefined && this.#parts.store.stats().open) return true
    const secrets = digestOf(rules, instance)
    const by = nameOf(instance)
    const stored = { key, shared, rules: rules.map(withoutSecrets), secrets, by, ...(hosts.length > 0 && { hosts }) }
    const text = JSON.stringify(stored)
    if (active !== undefined && known?.text !== text) return false
    const usable = this.#rulesOf(runtime, rules)
    const own = { rules: () => usable, instance, text: textOf(stored) }
    const now = this.#parts.now()
    const isFresh = known?.saved === true && known.text === text && now - known.at < RULES_FRESH_MS
    this.#byRuntime.putWithin(this.#maxRuntimes, runtime, {
      ...{ rules: own.rules, hosts: () => hosts, sealer: () => sealer, text, announced: true, instance, own },
      ...{ at: isFresh ? known.at : now, saved: isFresh },
    })
    if (!isFresh) this.#save(runtime, text, now)
    return true
  }

  /** The runtime's client has a fresh token, which names these hosts. */
  renewed(runtime: string, hosts: readonly string[]): void {
    const known = this.#byRuntime.get(runtime)
    if (known === undefined || isDeepStrictEqual(known.hosts(), hosts)) return
    const text = JSON.stringify({ ...(JSON.parse(known.text) as StoredRules), hosts })
    const at = this.#parts.now()
    this.#byRuntime.putWithin(this.#maxRuntimes, runtime, { ...known, hosts: () => hosts, text, at, saved: false })
    this.#save(runtime, text, at)
  }

  /** Without a key, webhooks are kept only if the operator allows unencrypted ones. */
  #sealerOf(
    key: string | undefined,
    shared: boolean,
  ): { readonly sealer?: ClientSealer | undefined; readonly problem?: string } {
    if (key === undefined && !this.#parts.plaintext) {
      return {
        problem: 'its client has no key to seal them for (--inbox.key.file), and --inbox.plaintext is not given',
      }
    }
    try {
      return { sealer: sealerOf(key, shared) }
    } catch {
      return { problem: 'the key of its client is invalid' }
    }
  }

  /** A rule whose secrets are unusable is switched off, so that nothing is stored unchecked. */
  #rulesOf(runtime: string, rules: readonly InboxRule[]): Rules {
    const { maxAgeMs } = this.#parts
    const wrong = (rule: InboxRule, error: unknown): InboxRule => {
      const err = { message: (error as Error).message }
      this.#parts.logger.error(
        { runtime, route: rule.route, err },
        'a route has no inbox: its signatures cannot be checked',
      )
      return { ...withoutSecrets(rule), mode: 'off' }
    }
    const usable = rules.map(rule => {
      try {
        return new Rules([rule], maxAgeMs) && rule
      } catch (error) {
        return wrong(rule, error)
      }
    })
    return new Rules(usable, maxAgeMs)
  }

  /**
   * Unreadable rules are skipped: the runtime's next session announces them again. Until there is a webhook for them, only their text is
   * kept, since values that others have written may take many times as much.
   */
  #load(runtime: string, text: string, at: number): void {
    const read = () => JSON.parse(text) as StoredRules
    try {
      const stored = read()
      if (stored.key === undefined && !this.#parts.plaintext && stored.rules.length > 0) return
      const own = this.#byRuntime.get(runtime)?.own
      const isOwn = own !== undefined && own.text === textOf(stored)
      const rules = isOwn ? own.rules : memoized(() => new Rules(read().rules, this.#parts.maxAgeMs))
      const hosts = memoized(() => read().hosts ?? [])
      const sealer = memoized(() => {
        const { key, shared = false } = read()
        return sealerOf(key, shared)
      })
      const loaded = { rules, hosts, sealer, text, announced: false, own, at, saved: true }
      this.#byRuntime.putWithin(this.#maxRuntimes, runtime, loaded)
    } catch (error) {
      this.#logUnreadable(runtime, error)
    }
  }

  #logUnreadable(runtime: string, error: unknown): void {
    const err = { message: (error as Error).message }
    this.#parts.logger.error({ runtime, err }, 'the stored rules of a runtime cannot be read')
  }

  /** `at` is when they were announced, however late they are written. */
  #save(runtime: string, rules: string, at: number): void {
    detached(this.#parts.logger, RULES_NOT_WRITTEN, this.#write(runtime, rules, at))
  }

  /** If this fails, a restart loses the rules until the client announces them again. */
  async #write(runtime: string, rules: string, at: number): Promise<void> {
    try {
      const proven = this.#parts.mac?.addRulesMac(runtime, rules, at) ?? rules
      await this.#parts.store.apply({ op: 'rules', runtime, rules: proven, at })
      const known = this.#byRuntime.get(runtime)
      this.#unproven.delete(runtime)
      if (known?.text === rules) this.#byRuntime.put(runtime, { ...known, at, saved: true })
    } catch (error) {
      const err = { message: (error as Error).message }
      this.#parts.logger.warn({ runtime, err }, RULES_NOT_WRITTEN)
    }
  }

  /**
   * Adopts the rules in the store, except where our own are still being written. If those in the store are newer, another server has written
   * them while we could not write ours. If ours may have been overtaken, the store has those that hold. Where it has none, there is nothing
   * to withdraw.
   */
  adopt(rules: Contents['rules']): void {
    const trusted = this.#trusted(rules)
    const gives = (runtime: string, known: RuntimeRules) => known.saved || this.#isOvertaken(runtime, known) === true
    for (const [runtime, known] of this.#byRuntime)
      if (!trusted.has(runtime) && (gives(runtime, known) || isWithdrawal(known))) this.#byRuntime.delete(runtime)
    if (trusted.size > this.#maxRuntimes) this.#parts.logger.warn({ runtimes: trusted.size }, TOO_MANY_RUNTIMES)
    for (const [runtime, { rules: text, seen }] of [...trusted].slice(-this.#maxRuntimes)) {
      const known = this.#byRuntime.get(runtime)
      if (known === undefined || (known.text !== text && (known.at < seen || gives(runtime, known))))
        this.#load(runtime, text, Math.min(seen, this.#parts.now()))
    }
  }

  /** The MAC secrets have changed. */
  retryUnproven(): void {
    this.#verified.clear()
    const trusted = this.#trusted([...this.#unproven.values()])
    for (const [runtime, { rules, seen }] of trusted)
      if (this.#byRuntime.get(runtime) === undefined) this.#load(runtime, rules, Math.min(seen, this.#parts.now()))
  }

  /**
   * The stored rules, by runtime. Rules without a valid MAC are ignored, so nothing is kept for that runtime. So are those that a sweep
   * would delete if somebody had not put them back. A change of one runtime makes us read the rules of all, so only those that differ are
   * verified again.
   */
  #trusted(stored: Contents['rules']): Map<string, StoredRow> {
    const { mac, logger } = this.#parts
    if (mac === undefined) return new Map(stored.map(row => [row.runtime, row]))
    const trusted = new Map<string, StoredRow>()
    const unproven = new Map<string, StoredRow>()
    const verified = new Map<string, VerifiedRow>()
    const since = this.#parts.since()
    for (const row of stored) {
      const { runtime, rules } = row
      const known = this.#verified.get(runtime)
      const { proven } = known?.stored === rules ? known : { proven: mac.verifiedRules(runtime, rules) }
      verified.set(runtime, { stored: rules, proven })
      if (proven !== undefined && proven.at >= since) trusted.set(runtime, { ...row, rules: proven.rules })
      else {
        unproven.set(runtime, row)
        if (!this.#unproven.has(runtime)) logger.error({ runtime }, proven === undefined ? UNPROVEN_RULES : OLD_RULES)
      }
    }
    this.#verified = verified
    this.#unproven = unproven
    return trusted
  }

  /** A new, empty file has none of the rules, so each is written again. */
  forgetSaved(): void {
    for (const [, known] of this.#byRuntime) known.saved = false
  }

  /** After a restore or a failover, the store may lack what our clients announced, or have earlier rules. Then theirs are written again. */
  keepLost(stored: Contents['rules']): void {
    const seen = new Map(stored.map(row => [row.runtime, row.seen]))
    for (const [runtime, known] of this.#byRuntime) {
      const isLost = known.saved && known.at > (seen.get(runtime) ?? 0)
      if (isLost && known.announced && this.#parts.isHere(runtime)) known.saved = false
    }
  }

  /** Writes what the store does not have yet, unless it may have been overtaken. If it has been, the store has the rules that hold. */
  saveMissing(): void {
    let isBehind = false
    for (const [runtime, known] of this.#byRuntime) {
      if (known.saved) continue
      const overtaken = this.#isOvertaken(runtime, known)
      if (overtaken === 'unknown') this.#parts.look(runtime)
      else if (overtaken) isBehind = true
      else this.#save(runtime, known.text, known.at)
    }
    if (isBehind) this.#parts.store.shared?.reload()
  }

  #isOvertaken(runtime: string, { instance }: RuntimeRules): boolean | 'unknown' {
    return instance !== undefined && this.#parts.isOvertaken({ runtime, instance })
  }

  /** Also renews the rules of connected clients, so that they do not expire. */
  refresh(): void {
    const now = this.#parts.now()
    this.saveMissing()
    for (const [runtime, { text, at, saved }] of this.#byRuntime)
      if (saved && now - at >= RULES_FRESH_MS && this.#parts.isLive(runtime)) this.#save(runtime, text, now)
  }
}

const NO_RULES = textOf({ rules: [] })

function isWithdrawal({ own }: RuntimeRules): boolean {
  return own?.text === NO_RULES
}

/** Checking the keys of 10,000 runtimes takes seconds, so a stored one is checked when a webhook comes. */
function memoized<Value>(make: () => Value): () => Value {
  let made: Value | undefined
  return () => (made ??= make())
}

/** Throws if `key` is no valid public key. */
function sealerOf(key: string | undefined, shared: boolean): ClientSealer | undefined {
  return key === undefined ? undefined : new ClientSealer(Buffer.from(key, 'base64url'), shared)
}

const RULES_NOT_WRITTEN = 'the rules of a runtime could not be written to the inbox'
const TOO_MANY_RUNTIMES =
  'the inbox has the rules of too many runtimes: webhooks of those that were away longest are not stored'
const OLD_RULES =
  'the stored rules of a runtime are older than 30 days: its webhooks are not stored until its client connects again'
const UNPROVEN_RULES =
  'the stored rules of a runtime have no valid MAC: its webhooks are not stored until its client connects again'

/**
 * Stored with the rules, so that a server that has other secrets drops them once it reads this. It is no help in guessing a secret, since it
 * is keyed with the id of the instance, which is random and not in the store.
 */
function digestOf(rules: readonly InboxRule[], instance = ''): string | undefined {
  const secrets = rules.flatMap(({ verify }) => verify ?? [])
  if (secrets.length === 0) return undefined
  return createHmac('sha256', instance).update(JSON.stringify(secrets)).digest('base64url')
}

/** A name of the instance for the store. It is too short to find its id by, which is the key of {@link digestOf}. */
function nameOf(instance = ''): string {
  return createHash('sha256').update(instance).digest('base64url').slice(0, 6)
}

/** As long as this is the same, the secrets are. */
function textOf({ rules, secrets }: Pick<StoredRules, 'rules'> & { secrets?: string | undefined }): string {
  return JSON.stringify([rules, secrets])
}

function withoutSecrets({ verify: _, ...rule }: InboxRule & { verify?: unknown }): InboxRule {
  return rule
}
