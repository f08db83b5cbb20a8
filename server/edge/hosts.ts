/** Finds the runtime for the host of a request: `<runtime>.<domain>`, with exactly one label in front, or a host of its own. */
import { networkOf } from '../../protocol/base/address.ts'
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { guardWith } from '../../protocol/base/guard.ts'
import { isHostName, isRuntimeName } from '../../protocol/base/names.ts'
import type { Handler, HttpRequest } from '../../protocol/exchange.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { ASK_DIRECTORY, type OwnHosts } from '../own-hosts.ts'

type HostMatch =
  | { readonly kind: 'runtime'; readonly runtime: string }
  /** The control endpoint's name, which is served only on the control endpoint's connections. */
  | { readonly kind: 'control' }
  | { readonly kind: 'unknown' }

const UNKNOWN: HostMatch = { kind: 'unknown' }
const CONTROL: HostMatch = { kind: 'control' }
const PORT = /:\d{1,5}$/

export class Hosts {
  readonly #domains: ReadonlySet<string>
  readonly #controlName: string | undefined
  readonly #own: OwnHosts | undefined
  /** The last lookup, since most requests of a connection are for the same runtime. */
  #authority: string | undefined
  #runtime: string | undefined

  /** All names are in lower case. `own` is absent if runtimes cannot have hosts of their own. */
  constructor(domains: readonly string[], controlName: string | undefined, own?: OwnHosts) {
    this.#domains = new Set(domains)
    this.#controlName = controlName
    this.#own = own
  }

  /** `authority` may have a port, upper case letters, and a trailing dot. */
  match(authority: string): HostMatch {
    const runtime = this.runtimeOf(authority)
    if (runtime !== undefined) return { kind: 'runtime', runtime }
    return this.#controlName !== undefined && hostOf(authority) === this.#controlName ? CONTROL : UNKNOWN
  }

  runtimeOf(authority: string): string | undefined {
    if (authority !== this.#authority) {
      this.#runtime = this.#find(authority)
      this.#authority = authority
    }
    return this.#runtime ?? (this.#own && this.#ownOf(this.#own, authority))
  }

  /** The host, unless it is `<runtime>.<domain>`. */
  ownHostOf(authority: string): string | undefined {
    return this.#find(authority) === undefined ? hostOf(authority) : undefined
  }

  #ownOf(own: OwnHosts, authority: string): string | undefined {
    const runtime = own.runtimeOf(hostOf(authority))
    return runtime === ASK_DIRECTORY ? undefined : runtime
  }

  /**
   * Asks the directory whose host it is, if {@link runtimeOf} does not know. `undefined` if there is no point in asking. `refused`
   * if the caller has asked for too many names that nobody serves.
   */
  ask(authority: string, address: string): Promise<unknown> | 'refused' | undefined {
    const host = hostOf(authority)
    const asks = this.#mayBeOwn(host) && this.#own!.runtimeOf(host) === ASK_DIRECTORY
    return asks ? this.#own!.ask(host, networkOf(address)) : undefined
  }

  /** The error for an authority that leads to no runtime. */
  refusal(authority: string): SallyportError {
    const host = hostOf(authority)
    if (host === this.#controlName) return new SallyportError('misdirected')
    const mayBeServed = this.#mayBeOwn(host) && this.#own!.mayBeServed(host)
    return new SallyportError(mayBeServed ? 'runtime-offline' : 'unknown-host')
  }

  #mayBeOwn(host: string): boolean {
    return this.#own !== undefined && host !== this.#controlName && isHostName(host)
  }

  #find(authority: string): string | undefined {
    const host = hostOf(authority)
    if (host === this.#controlName) return undefined
    const dot = host.indexOf('.')
    if (dot <= 0 || !this.#domains.has(host.slice(dot + 1))) return undefined
    const runtime = host.slice(0, dot)
    return isRuntimeName(runtime) ? runtime : undefined
  }
}

/** The layer that determines which runtime a request is for. */
export function byHost(hosts: Hosts, refuse: Refuse): Layer {
  const assign = (request: HttpRequest): boolean => {
    request.runtime = hosts.runtimeOf(request.authority)
    if (request.runtime === undefined) return false
    const ownHost = hosts.ownHostOf(request.authority)
    if (ownHost !== undefined) request.ownHost = ownHost
    return true
  }
  return next => (request, response) => {
    if (assign(request)) return next(request, response)
    const answer = hosts.ask(request.authority, request.caller!.address)
    if (answer === undefined) return refuse(request, response, hosts.refusal(request.authority))
    if (answer === 'refused') return refuse(request, response, new SallyportError('too-many-requests'))
    return new PendingLookup(response).wait(
      answer,
      () => {
        if (assign(request)) return next
        return (refused, response) => refuse(refused, response, hosts.refusal(refused.authority))
      },
      request,
    )
  }
}

/** A request that waits for the directory's answer. */
class PendingLookup extends PassThrough {
  wait(answer: Promise<unknown>, handler: () => Handler, request: HttpRequest): this {
    const guard = guardWith(error => this.responseAbort(toSallyportError(error)))
    const answered = guard(() => this.pass(handler(), request))
    answer.then(answered, answered)
    return this
  }
}

function hostOf(authority: string): string {
  let host = authority.toLowerCase()
  if (host.includes(':')) host = host.replace(PORT, '')
  return host.endsWith('.') ? host.slice(0, -1) : host
}
