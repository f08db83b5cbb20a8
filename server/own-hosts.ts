/**
 * Hosts of runtimes' own, such as `hooks.customer.com`. Their tokens claim them; the directory says who has one, so that all
 * replicas agree. To the directory a host is a name as a runtime is, told apart by its dot, and the runtimes that claim it
 * are its instances.
 *
 * Who has a host keeps it: another runtime enters only where nobody is. It stays for a while after the last session, as a
 * runtime stays known. It goes at once where a fresh token claims it no longer, or the token is revoked.
 */
import { type Guard, logGuard } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import type { Directory, DirectoryListener, Registration, RuntimeState } from './directory/directory.ts'
import type { Questions } from './questions.ts'

/** A session whose token claims hosts. */
interface Claimant {
  readonly id: string
  readonly runtime: string
  /** Says something to whoever runs the client. */
  tell(code: string, message: string): void
}

interface OwnHostsOptions {
  readonly directory: Directory
  readonly questions: Questions
  readonly logger: Logger
  /** How long a host is kept for a runtime after its last session. */
  readonly keepMs: number
  /** How long after the start a host that nobody has claimed yet may still be. */
  readonly startupMs: number
}

/** Hosts of runtimes' own, as one server sees them. */
export interface HostStats {
  /** Hosts that runtimes with sessions here have. */
  readonly held: number
  /** Hosts that they claim, and another runtime has. */
  readonly contested: number
  /** How often a claim met another runtime, since the start. */
  readonly conflicts: number
}

type Standing = 'waiting' | 'held' | 'taken'

/** What one runtime wants with one host, over all of its sessions here. */
interface Claim {
  readonly host: string
  readonly runtime: string
  readonly claimants: Set<Claimant>
  standing: Standing
  /** Epoch that the runtime was given for the host. */
  epoch: number
  /** The directory was told. */
  entered: boolean
  /** It has no session any more, and is kept for a while. */
  leaving: NodeJS.Timeout | undefined
}

/** Most claims at a time: a token has 32 at most, and who came last goes without. */
const MAX_CLAIMS = 100_000
/** Hosts that are not had are looked at this often, so many at a time: the holder's replica may have died. */
const LOOK_MS = 5000
const LOOKS = 100
/** Not to be kept at all: whoever issued the token means the host for somebody else. */
const TAKEN = -1
/** No runtime has this name. */
export const ASK = '?'
/** Has a host that was taken from its runtime, until somebody claims it. No runtime has this name either. */
const NOBODY = '-'

export class OwnHosts implements DirectoryListener {
  readonly #options: OwnHostsOptions
  readonly #directory: Directory
  /** By host, then by runtime in the order in which they came. */
  readonly #claims = new Map<string, Map<string, Claim>>()
  readonly #ofClaimant = new Map<Claimant, readonly string[]>()
  /** Hosts that the directory is being told of. */
  readonly #entering = new Set<string>()
  /** Hosts with a claim that is not held; the one that was looked at last is last. */
  readonly #wanted = new Set<string>()
  readonly #timer: NodeJS.Timeout
  readonly #startedMs = performance.now()
  #size = 0
  #conflicts = 0

  constructor(options: OwnHostsOptions) {
    this.#options = options
    this.#directory = options.directory
    const look = this.#guard(() => this.#lookAll())
    this.#timer = setInterval(look, LOOK_MS).unref()
  }

  readonly #guard: Guard = step =>
    logGuard(this.#options.logger, 'the hosts of runtimes could not be looked after')(step)

  // What callers ask for.

  /**
   * Whose host it is; {@link ASK}: the directory has to be asked. A runtime without a session keeps a host that nobody else wants,
   * but one that is back must claim it again.
   */
  runtimeOf(host: string): string | undefined {
    const state = this.#directory.find(host)
    if (state === 'unknown') return ASK
    const runtime = state?.active ?? ''
    if (runtime === '' || runtime === NOBODY) return undefined
    if (this.#isLive(state)) return runtime
    // The store drops the replicas that have died once it is asked.
    if (holderOf(state) !== undefined) this.#look(host)
    const itself = this.#directory.find(runtime)
    if (itself === 'unknown') return ASK
    return this.#isLive(itself) ? undefined : runtime
  }

  /** Whether a replica that may be alive has a session of the active instance. */
  #isLive(state: RuntimeState | undefined): boolean {
    const replicas = state?.instances.get(state.active)?.replicas ?? []
    return replicas.some(replica => !this.#directory.isDead(replica))
  }

  /** Of a host that leads nowhere: whether it may at any moment, as its runtime may be about to claim it. */
  mayCome(host: string): boolean {
    // Clients of a server that stands alone and has just begun may be on their way.
    if (performance.now() - this.#startedMs < this.#options.startupMs) return true
    const state = this.#directory.find(host)
    return state === 'unknown' || (state !== undefined && state.active !== NOBODY)
  }

  /** Asks the directory. Rejects if it cannot be asked. */
  ask(host: string, network: string): Promise<unknown> | 'refused' {
    if (this.#directory.find(host) !== 'unknown') return this.#askHolder(host)
    const answer = this.#options.questions.ask(host, network)
    return answer === 'refused' ? answer : answer.then(() => this.#askHolder(host))
  }

  /** Whoever calls has not made this name up, so it counts against nobody. */
  async #askHolder(host: string): Promise<void> {
    const state = this.#directory.find(host)
    if (typeof state === 'object' && this.runtimeOf(host) === ASK) await this.#directory.refresh(state.active)
  }

  stats(): HostStats {
    let held = 0
    let contested = 0
    for (const claims of this.#claims.values()) {
      for (const { standing } of claims.values()) {
        if (standing === 'held') held++
        else if (standing === 'taken') contested++
      }
    }
    return { held, contested, conflicts: this.#conflicts }
  }

  /** Those that a session claims and its runtime has. */
  heldBy(claimant: Claimant): readonly string[] {
    const hosts = this.#ofClaimant.get(claimant) ?? []
    return hosts.filter(host => this.#claims.get(host)?.get(claimant.runtime)?.standing === 'held')
  }

  // What sessions claim.

  /** The session is ready, or has a fresh token: these it claims from now on. */
  claim(claimant: Claimant, hosts: readonly string[]): void {
    const before = this.#ofClaimant.get(claimant) ?? []
    for (const host of before) if (!hosts.includes(host)) this.#drop(claimant, host, TAKEN)
    if (hosts.length === 0) this.#ofClaimant.delete(claimant)
    else this.#ofClaimant.set(claimant, hosts)
    for (const host of hosts) if (!before.includes(host)) this.#add(claimant, host)
  }

  /** The session has ended. */
  left(claimant: Claimant): void {
    this.#forget(claimant, this.#options.keepMs)
  }

  /** Its token is revoked. */
  revoked(claimant: Claimant): void {
    this.#forget(claimant, TAKEN)
  }

  #forget(claimant: Claimant, keepMs: number): void {
    for (const host of this.#ofClaimant.get(claimant) ?? []) this.#drop(claimant, host, keepMs)
    this.#ofClaimant.delete(claimant)
  }

  #add(claimant: Claimant, host: string): void {
    const claim = this.#claimOf(host, claimant.runtime)
    if (claim === undefined) {
      claimant.tell('host-refused', `this server has no room for the host ${host}`)
      return
    }
    clearTimeout(claim.leaving)
    claim.leaving = undefined
    claim.claimants.add(claimant)
    if (claim.standing === 'taken') tellTaken(claimant, host)
    else this.#settle(host)
  }

  #claimOf(host: string, runtime: string): Claim | undefined {
    const claims = this.#claims.get(host) ?? new Map<string, Claim>()
    let claim = claims.get(runtime)
    if (claim !== undefined) return claim
    if (this.#size >= MAX_CLAIMS) return undefined
    claim = { host, runtime, claimants: new Set(), standing: 'waiting', epoch: 0, entered: false, leaving: undefined }
    claims.set(runtime, claim)
    this.#claims.set(host, claims)
    this.#size++
    return claim
  }

  #drop(claimant: Claimant, host: string, keepMs: number): void {
    const claim = this.#claims.get(host)?.get(claimant.runtime)
    if (claim?.claimants.delete(claimant) !== true || claim.claimants.size > 0) return
    // What its runtime does not have is kept for those who want it now.
    if (keepMs <= 0 || claim.standing !== 'held') {
      this.#end(claim, keepMs === TAKEN)
      return
    }
    const end = this.#guard(() => this.#end(claim, false))
    claim.leaving = setTimeout(end, keepMs).unref()
  }

  /** `taken`: the runtime may not have the host any more, whether or not another one wants it. */
  #end(claim: Claim, taken: boolean): void {
    const { host, runtime, standing, epoch, entered } = claim
    const claims = this.#claims.get(host)!
    claims.delete(runtime)
    this.#size--
    if (claims.size === 0) {
      this.#claims.delete(host)
      this.#wanted.delete(host)
    }
    if (standing === 'held') this.#options.logger.info({ host, runtime }, 'a host is given up')
    if (!entered) return
    this.#directory.gone(host, runtime)
    if (taken && standing === 'held') this.#take(host, runtime, epoch)
  }

  /** Gives the host to nobody, unless sessions at other replicas still claim it. `changed` clears the rest away. */
  #take(host: string, runtime: string, epoch: number): void {
    const isClaimed = (state: RuntimeState | undefined) =>
      this.#claims.get(host)?.has(runtime) === true ||
      state?.instances.get(runtime)?.replicas.some(replica => replica !== this.#directory.replica) === true
    const known = this.#directory.find(host)
    if (known !== 'unknown' && isClaimed(known)) return
    const give = (lastEpoch: number) => this.#directory.ready({ runtime: host, instance: NOBODY, lastEpoch })
    const given = this.#guard((state: RuntimeState) => {
      // A directory that is away, or young, grants nothing. This epoch is the latest also there.
      if (state.active === runtime && !isClaimed(state)) give(Math.max(epoch, state.epoch) + 1).catch(ignore)
    })
    give(0).then(given, ignore)
  }

  // What the directory says.

  changed(state: RuntimeState): void {
    const host = state.runtime
    for (const [runtime, { replicas }] of state.instances) {
      const isClaimed = this.#claims.get(host)?.get(runtime)?.entered === true
      if (!isClaimed && replicas.includes(this.#directory.replica)) this.#directory.gone(host, runtime)
    }
    this.#settle(host)
  }

  regained(): void {
    for (const host of [...this.#wanted]) this.#settle(host)
  }

  *live(): IterableIterator<Registration> {
    for (const [host, claims] of this.#claims) {
      for (const { runtime, epoch, entered, standing } of claims.values()) {
        // Who told the directory in vain, in the same moment as another one, does not do so again.
        if (entered && standing !== 'taken') yield { runtime: host, instance: runtime, lastEpoch: epoch }
      }
    }
  }

  #lookAll(): void {
    for (const host of [...this.#wanted].slice(0, LOOKS)) {
      this.#wanted.delete(host)
      this.#wanted.add(host)
      this.#look(host)
    }
  }

  #look(host: string): void {
    const looked = this.#guard(() => {
      if (this.#directory.find(host) !== 'unknown') this.#settle(host)
    })
    this.#directory.refresh(host).then(looked, ignore)
  }

  /** Tells the claims of a host where they stand, and the directory of the one that comes next: not at once of one that `entered`. */
  #settle(host: string, entered?: Claim): void {
    const claims = this.#claims.get(host)
    if (claims === undefined || this.#entering.has(host)) return
    const state = this.#directory.find(host)
    if (state === 'unknown') {
      const isNew = !this.#wanted.has(host)
      this.#wanted.add(host)
      if (isNew) this.#look(host)
      return
    }
    const holder = holderOf(state)
    let isWanted = false
    for (const claim of claims.values()) {
      this.#judge(claim, holder, state)
      if (claim.standing !== 'held') isWanted = true
    }
    if (isWanted) this.#wanted.add(host)
    else this.#wanted.delete(host)
    const [first] = claims.values()
    const next = holder === undefined ? first : claims.get(holder)
    if (next !== undefined && next !== entered && !this.#isListed(next, state)) this.#enter(next)
  }

  /** Whether the directory knows of a claim here. It may have forgotten one, and one that waits is written back by nobody else. */
  #isListed({ runtime, entered }: Claim, state: RuntimeState | undefined): boolean {
    return entered && state?.instances.get(runtime)?.replicas.includes(this.#directory.replica) === true
  }

  #judge(claim: Claim, holder: string | undefined, state: RuntimeState | undefined): void {
    const { host, runtime } = claim
    const standing: Standing = holder === undefined ? 'waiting' : holder === runtime ? 'held' : 'taken'
    claim.epoch = Math.max(claim.epoch, state?.instances.get(runtime)?.epoch ?? 0)
    if (standing === claim.standing) return
    const { logger } = this.#options
    if (standing === 'held') logger.info({ host, runtime }, 'a host is served')
    if (standing === 'taken') {
      this.#conflicts++
      logger.warn({ host, runtime, holder }, 'a host is claimed that another runtime has; that one keeps it')
      for (const claimant of claim.claimants) tellTaken(claimant, host)
    }
    if (standing === 'held' && claim.standing === 'taken') {
      for (const claimant of claim.claimants) claimant.tell('host-served', `the host ${host} is this runtime's now`)
    }
    // Between two holders nobody is, for a moment: who was refused is still.
    if (standing !== 'waiting' || claim.standing === 'held') claim.standing = standing
  }

  #enter(claim: Claim): void {
    const { host, runtime, epoch } = claim
    claim.entered = true
    this.#entering.add(host)
    const entered = this.#guard(() => {
      this.#entering.delete(host)
      this.#settle(host, claim)
    })
    const failed = this.#guard(() => {
      this.#entering.delete(host)
      claim.entered = false
      this.#wanted.add(host)
    })
    this.#directory.ready({ runtime: host, instance: runtime, lastEpoch: epoch }).then(entered, failed)
  }

  close(): void {
    clearInterval(this.#timer)
    for (const claims of this.#claims.values()) for (const { leaving } of claims.values()) clearTimeout(leaving)
    this.#claims.clear()
  }
}

function tellTaken(claimant: Claimant, host: string): void {
  claimant.tell('host-taken', `the host ${host} is another runtime's, which keeps it`)
}

/** The runtime that has the host, and a session for it. */
function holderOf(state: RuntimeState | undefined): string | undefined {
  const { active = '', instances } = state ?? {}
  return active !== NOBODY && (instances?.get(active)?.replicas.length ?? 0) > 0 ? active : undefined
}

/** The directory reports by itself when it cannot be reached. */
function ignore(): void {}
