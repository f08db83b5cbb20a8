/**
 * Hosts of runtimes' own, such as `hooks.customer.com`. Tokens claim them, and the directory says which runtime has each, so that
 * all replicas agree. The directory treats a host like a runtime, told apart by the dot in its name. The runtimes that claim it are
 * its instances.
 *
 * A runtime keeps the host that it has: another runtime can get it only when nobody has it. A host is kept for a while after the
 * last session, just as a runtime stays known. It is given up at once if a fresh token no longer claims it, or the token is revoked.
 */
import { detached, type Guard, ignore, logGuard, starting } from '../protocol/base/guard.ts'
import type { Logger } from '../protocol/base/log.ts'
import { oneAtATime } from '../protocol/base/one-at-a-time.ts'
import { inBatches } from './batches.ts'
import type { Directory, DirectoryListener, Registration, RuntimeState } from './directory/directory.ts'
import type { Questions } from './questions.ts'

/** A session whose token claims hosts. */
interface Claimant {
  readonly id: string
  readonly runtime: string
  /** Sends a notice to the client's operator. */
  tell(code: string, message: string): void
}

interface OwnHostsOptions {
  readonly directory: Directory
  readonly questions: Questions
  readonly logger: Logger
  /** How long a host is kept for a runtime after its last session. */
  readonly keepMs: number
  /** How long after the start a host that nobody has claimed yet may still be claimed. */
  readonly startupMs: number
}

/** Hosts of runtimes' own, as one server sees them. */
export interface HostStats {
  /** Hosts that are held by runtimes with sessions here. */
  readonly held: number
  /** Hosts that they claim, but that another runtime has. */
  readonly contested: number
  /** How many claims conflicted with another runtime's, since the start. */
  readonly conflicts: number
}

type ClaimStatus = 'waiting' | 'held' | 'taken'

/** The claim of one runtime to one host, over all of its sessions here. */
interface Claim {
  readonly host: string
  readonly runtime: string
  readonly claimants: Set<Claimant>
  status: ClaimStatus
  /** Epoch that the runtime was granted for the host. */
  epoch: number
  /** The directory has been told. */
  registered: boolean
  /** Runs while the claim is kept although no session is left. */
  leaving: NodeJS.Timeout | undefined
}

/** Most claims at a time. One token has at most 32. Further claims are refused. */
const MAX_CLAIMS = 100_000
/** How often claims that are not held are checked again, since the holder's replica may have died. */
const RECHECK_MS = 5000
/** Most hosts that are checked at a time. */
const RECHECKS = 100
/** Give the host up at once: the issuer of the token no longer grants it. */
const NOT_KEPT = -1
/** Means that the directory must be asked. No runtime can have this name. */
export const ASK_DIRECTORY = '?'
/** Holds a host that was withdrawn from its runtime, until another runtime claims it. No runtime can have this name. */
const NOBODY = '-'

const FAILED = "managing the hosts of runtimes' own failed"

export class OwnHosts implements DirectoryListener {
  readonly #options: OwnHostsOptions
  readonly #directory: Directory
  /** Guarded, since an embedder's directory may throw. */
  readonly #gone: (host: string, runtime: string) => void
  /** By host, then by runtime in order of arrival. */
  readonly #claims = new Map<string, Map<string, Claim>>()
  readonly #ofClaimant = new Map<Claimant, readonly string[]>()
  /** Hosts whose registration with the directory is under way. */
  readonly #registering = new Set<string>()
  /** Hosts with a claim that is not held. The one that was checked last comes last. */
  readonly #unheld = new Set<string>()
  /** Rechecks what is not held, one round at a time. */
  readonly #recheckSoon: () => void
  readonly #timer: NodeJS.Timeout
  readonly #startedMs = performance.now()
  #size = 0
  #conflicts = 0

  constructor(options: OwnHostsOptions) {
    this.#options = options
    this.#directory = options.directory
    this.#gone = this.#guard((host: string, runtime: string) => this.#directory.gone(host, runtime))
    const alone = oneAtATime(() => this.#recheckUnheld())
    const due = starting(options.logger, FAILED, alone)
    this.#recheckSoon = due
    this.#timer = setInterval(due, RECHECK_MS).unref()
  }

  readonly #guard: Guard = step => logGuard(this.#options.logger, FAILED)(step)

  // For requests of callers.

  /**
   * The runtime that has the host, or {@link ASK_DIRECTORY}. A runtime without a session keeps a host that nobody else claims. Once it
   * is back, it must claim the host again.
   */
  runtimeOf(host: string): string | undefined {
    const state = this.#directory.find(host)
    if (state === 'unknown') return ASK_DIRECTORY
    const runtime = state?.active ?? ''
    if (runtime === '' || runtime === NOBODY) return undefined
    if (this.#isLive(state)) return runtime
    // The store removes replicas that have died when it is asked.
    if (holderOf(state) !== undefined) this.#recheck(host)
    const itself = this.#directory.find(runtime)
    if (itself === 'unknown') return ASK_DIRECTORY
    return this.#isLive(itself) ? undefined : runtime
  }

  /** Whether a replica that is not known to be dead has a session of the active instance. */
  #isLive(state: RuntimeState | undefined): boolean {
    const replicas = state?.instances.get(state.active)?.replicas ?? []
    return replicas.some(replica => !this.#directory.isDead(replica))
  }

  /** Whether a runtime may be about to claim a host that nobody serves at the moment. */
  mayBeServed(host: string): boolean {
    // Shortly after the start of a single server, its clients may still be on their way.
    if (performance.now() - this.#startedMs < this.#options.startupMs) return true
    // A session here claims it, and the directory may not have been told yet.
    if (this.#claims.has(host)) return true
    const state = this.#directory.find(host)
    return state === 'unknown' || (state !== undefined && state.active !== NOBODY)
  }

  /** Asks the directory about the host. Rejects if it cannot be reached. */
  ask(host: string, network: string): Promise<unknown> | 'refused' {
    if (this.#directory.find(host) !== 'unknown') return this.#askHolder(host)
    const answer = this.#options.questions.ask(host, network)
    return answer === 'refused' ? answer : answer.then(() => this.#askHolder(host))
  }

  /** The caller has not made this name up, so asking for it is not counted. */
  async #askHolder(host: string): Promise<void> {
    const state = this.#directory.find(host)
    if (typeof state === 'object' && this.runtimeOf(host) === ASK_DIRECTORY) await this.#directory.refresh(state.active)
  }

  stats(): HostStats {
    let held = 0
    let contested = 0
    for (const claims of this.#claims.values()) {
      for (const { status } of claims.values()) {
        if (status === 'held') held++
        else if (status === 'taken') contested++
      }
    }
    return { held, contested, conflicts: this.#conflicts }
  }

  /** The hosts that a session claims and its runtime has. */
  heldBy(claimant: Claimant): readonly string[] {
    const hosts = this.#ofClaimant.get(claimant) ?? []
    return hosts.filter(host => this.#claims.get(host)?.get(claimant.runtime)?.status === 'held')
  }

  // For sessions.

  /** The session is ready, or has a fresh token. From now on it claims exactly these hosts. */
  claim(claimant: Claimant, hosts: readonly string[]): void {
    const before = this.#ofClaimant.get(claimant) ?? []
    for (const host of before) if (!hosts.includes(host)) this.#drop(claimant, host, NOT_KEPT)
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
    this.#forget(claimant, NOT_KEPT)
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
    if (claim.status === 'taken') tellTaken(claimant, host)
    else this.#settle(host)
  }

  #claimOf(host: string, runtime: string): Claim | undefined {
    const claims = this.#claims.get(host) ?? new Map<string, Claim>()
    let claim = claims.get(runtime)
    if (claim !== undefined) return claim
    if (this.#size >= MAX_CLAIMS) return undefined
    claim = { host, runtime, claimants: new Set(), status: 'waiting', epoch: 0, registered: false, leaving: undefined }
    claims.set(runtime, claim)
    this.#claims.set(host, claims)
    this.#size++
    return claim
  }

  #drop(claimant: Claimant, host: string, keepMs: number): void {
    const claim = this.#claims.get(host)?.get(claimant.runtime)
    if (claim?.claimants.delete(claimant) !== true || claim.claimants.size > 0) return
    // A claim that is not held is not kept, so that others can get the host.
    if (keepMs <= 0 || claim.status !== 'held') {
      this.#end(claim, keepMs === NOT_KEPT)
      return
    }
    const end = this.#guard(() => this.#end(claim, false))
    claim.leaving = setTimeout(end, keepMs).unref()
  }

  /** `taken`: the runtime must give the host up even if no other runtime claims it. */
  #end(claim: Claim, taken: boolean): void {
    const { host, runtime, status, epoch, registered } = claim
    const claims = this.#claims.get(host)!
    claims.delete(runtime)
    this.#size--
    if (claims.size === 0) {
      this.#claims.delete(host)
      this.#unheld.delete(host)
    }
    if (status === 'held') this.#options.logger.info({ host, runtime }, 'a host is given up')
    if (!registered) return
    this.#gone(host, runtime)
    if (taken && status === 'held') this.#withdraw(host, runtime, epoch)
  }

  /** Registers the host for `NOBODY`, unless sessions at other replicas still claim it. `changed` cleans up the rest. */
  #withdraw(host: string, runtime: string, epoch: number): void {
    const isClaimed = (state: RuntimeState | undefined) =>
      this.#claims.get(host)?.has(runtime) === true ||
      state?.instances.get(runtime)?.replicas.some(replica => replica !== this.#directory.replica) === true
    const known = this.#directory.find(host)
    if (known !== 'unknown' && isClaimed(known)) return
    const give = (lastEpoch: number) => this.#directory.ready({ runtime: host, instance: NOBODY, lastEpoch })
    const given = this.#guard((state: RuntimeState) => {
      // A directory that is away or has lost its data grants nothing. This epoch is the latest there, too.
      if (state.active === runtime && !isClaimed(state)) give(Math.max(epoch, state.epoch) + 1).catch(ignore)
    })
    // The directory itself reports if it cannot be reached.
    give(0).then(given, ignore)
  }

  // Called by the directory.

  changed(state: RuntimeState): void {
    const host = state.runtime
    for (const [runtime, { replicas }] of state.instances) {
      const isClaimed = this.#claims.get(host)?.get(runtime)?.registered === true
      if (!isClaimed && replicas.includes(this.#directory.replica)) this.#gone(host, runtime)
    }
    this.#settle(host)
  }

  regained(): void {
    for (const host of [...this.#unheld]) this.#settle(host)
    this.#recheckSoon()
  }

  *live(): IterableIterator<Registration> {
    for (const [host, claims] of this.#claims) {
      for (const { runtime, epoch, registered, status } of claims.values()) {
        // A claim that lost to another runtime at the same moment is not registered again.
        if (registered && status !== 'taken') yield { runtime: host, instance: runtime, lastEpoch: epoch }
      }
    }
  }

  /**
   * Checks the next few hosts, and all that the directory has yet to be asked about: sessions may have claimed thousands while it could
   * not be reached.
   */
  async #recheckUnheld(): Promise<void> {
    const next = [...this.#unheld].slice(0, RECHECKS)
    for (const host of next) {
      this.#unheld.delete(host)
      this.#unheld.add(host)
    }
    const unknown = [...this.#unheld].filter(host => this.#directory.find(host) === 'unknown')
    await inBatches([...new Set([...next, ...unknown])], RECHECKS, async host => {
      if (this.#unheld.has(host)) await this.#look(host)
    })
  }

  #recheck(host: string): void {
    detached(this.#options.logger, FAILED, this.#look(host))
  }

  async #look(host: string): Promise<void> {
    const looked = this.#guard(() => {
      if (this.#directory.find(host) !== 'unknown') this.#settle(host)
    })
    await this.#directory.refresh(host).then(looked, ignore)
  }

  /** Updates the claims of a host, and registers the next in line with the directory, unless `registered` was just tried. */
  #settle(host: string, registered?: Claim): void {
    const claims = this.#claims.get(host)
    if (claims === undefined || this.#registering.has(host)) return
    const state = this.#directory.find(host)
    if (state === 'unknown') {
      const isNew = !this.#unheld.has(host)
      this.#unheld.add(host)
      if (isNew) this.#recheck(host)
      return
    }
    const holder = holderOf(state)
    let hasUnheld = false
    for (const claim of claims.values()) {
      this.#updateStatus(claim, holder, state)
      if (claim.status !== 'held') hasUnheld = true
    }
    if (hasUnheld) this.#unheld.add(host)
    else this.#unheld.delete(host)
    const [first] = claims.values()
    const next = holder === undefined ? first : claims.get(holder)
    if (next !== undefined && next !== registered && !this.#isListed(next, state)) this.#register(next)
  }

  /** Whether the directory lists a claim of ours. It may have lost it, and nobody else restores a waiting claim. */
  #isListed({ runtime, registered }: Claim, state: RuntimeState | undefined): boolean {
    return registered && state?.instances.get(runtime)?.replicas.includes(this.#directory.replica) === true
  }

  #updateStatus(claim: Claim, holder: string | undefined, state: RuntimeState | undefined): void {
    const { host, runtime } = claim
    const status: ClaimStatus = holder === undefined ? 'waiting' : holder === runtime ? 'held' : 'taken'
    claim.epoch = Math.max(claim.epoch, state?.instances.get(runtime)?.epoch ?? 0)
    if (status === claim.status) return
    const { logger } = this.#options
    if (status === 'held') logger.info({ host, runtime }, 'a host is served')
    if (status === 'taken') {
      this.#conflicts++
      logger.warn({ host, runtime, holder }, 'a runtime claims a host that another runtime has; the other one keeps it')
      for (const claimant of claim.claimants) tellTaken(claimant, host)
    }
    if (status === 'held' && claim.status === 'taken') {
      for (const claimant of claim.claimants)
        claimant.tell('host-served', `the host ${host} now belongs to this runtime`)
    }
    // For a moment between two holders nobody has the host. A refused claim stays refused until then.
    if (status !== 'waiting' || claim.status === 'held') claim.status = status
  }

  #register(claim: Claim): void {
    const { host, runtime, epoch } = claim
    claim.registered = true
    this.#registering.add(host)
    const registered = this.#guard(() => {
      this.#registering.delete(host)
      this.#settle(host, claim)
    })
    const failed = this.#guard(() => {
      this.#registering.delete(host)
      claim.registered = false
      this.#unheld.add(host)
    })
    this.#directory.ready({ runtime: host, instance: runtime, lastEpoch: epoch }).then(registered, failed)
  }

  close(): void {
    clearInterval(this.#timer)
    for (const claims of this.#claims.values()) for (const { leaving } of claims.values()) clearTimeout(leaving)
    this.#claims.clear()
    this.#unheld.clear()
  }
}

function tellTaken(claimant: Claimant, host: string): void {
  claimant.tell('host-taken', `the host ${host} belongs to another runtime, which keeps it`)
}

/** The runtime that has the host and a session for it. */
function holderOf(state: RuntimeState | undefined): string | undefined {
  const { active = '', instances } = state ?? {}
  return active !== NOBODY && (instances?.get(active)?.replicas.length ?? 0) > 0 ? active : undefined
}
