/** From the host of a request to the runtime that it means: `<runtime>.<domain>`, exactly one label in front. */
import { SallyportError } from '../../protocol/base/errors.ts'
import type { Refuse } from '../../protocol/http/problem.ts'
import type { Layer } from '../../protocol/layer.ts'
import { isRuntimeName } from '../../protocol/base/names.ts'

type HostMatch =
  | { readonly kind: 'runtime'; readonly runtime: string }
  /** The control endpoint's own name, which is served on its own connections only. */
  | { readonly kind: 'control' }
  | { readonly kind: 'unknown' }

const UNKNOWN: HostMatch = { kind: 'unknown' }
const CONTROL: HostMatch = { kind: 'control' }
const PORT = /:\d{1,5}$/

export class Hosts {
  readonly #domains: ReadonlySet<string>
  readonly #controlName: string | undefined
  /** The last lookup: most requests of a connection are for the same runtime. */
  #authority: string | undefined
  #runtime: string | undefined

  /** All names in lower case. */
  constructor(domains: readonly string[], controlName: string | undefined) {
    this.#domains = new Set(domains)
    this.#controlName = controlName
  }

  /** `authority` may carry a port, upper case, and the root's trailing dot. */
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
    return this.#runtime
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

/** The layer that says which runtime a request is for. */
export function byHost(hosts: Hosts, refuse: Refuse): Layer {
  return next => (request, response) => {
    request.runtime = hosts.runtimeOf(request.authority)
    if (request.runtime !== undefined) return next(request, response)
    const isControl = hosts.match(request.authority).kind === 'control'
    return refuse(request, response, new SallyportError(isControl ? 'misdirected' : 'unknown-host'))
  }
}

function hostOf(authority: string): string {
  let host = authority.toLowerCase()
  if (host.includes(':')) host = host.replace(PORT, '')
  return host.endsWith('.') ? host.slice(0, -1) : host
}
