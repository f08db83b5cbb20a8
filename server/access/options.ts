/** Who may call: what of a caller is checked at the edge, and for which requests. */
import { isDeepStrictEqual } from 'node:util'
import { checkDuration } from '../../protocol/base/durations.ts'
import { demand } from '../../protocol/base/limit.ts'
import { isRuntimeName } from '../../protocol/base/names.ts'
import { isForwardedName, isHopByHop, isToken } from '../../protocol/http/headers.ts'
import type { KeyOrigin } from '../auth/key-source.ts'
import type { Authorities } from '../tls.ts'
import { OPEN_PATH, openPath, readsOneWay } from './open-path.ts'

/** What callers must show, before a request goes on to its runtime. Every check that is set must agree. */
export interface AccessOptions {
  /** A token (JWT) in `Authorization: Bearer`. */
  readonly jwt?: CallerTokens | undefined
  /** Another service says who may call. */
  readonly forwardAuth?: ForwardAuth | undefined
  /** Authorities of callers' certificates (PEM, or a file, which is watched). Needs `public.tls`. */
  readonly clientCa?: Authorities | undefined
  /** Runtimes whose callers are checked. Default: all that no other set of rules names. */
  readonly runtimes?: readonly string[] | undefined
  /**
   * What everybody may call: `/webhooks` for that path and those below it, at all runtimes, or `demo/webhooks` at one. A path that can
   * be read in two ways, with `%`, `;`, `//` or `..`, is never among them.
   */
  readonly open?: readonly string[] | undefined
}

/** Which tokens callers may show. */
export interface CallerTokens {
  /** As for tunnel clients; best not the same set. */
  readonly jwks: KeyOrigin
  /** The exact `iss` claim, if given. */
  readonly issuer?: string | undefined
  /** The exact `aud` claim. Required, and not that of tunnel clients. */
  readonly audience: string
  /** Claim that must name the runtime, alone or in a list. Default: none, so that a token opens all runtimes. */
  readonly runtimeClaim?: string | undefined
  /** Leaves the token in the request. Default false: the runtime does not see it. */
  readonly forward?: boolean | undefined
}

/** Who is asked about each request: `GET url` with the caller's head. */
export interface ForwardAuth {
  readonly url: string
  /** Authorities of its certificate (PEM). Default: those of the system. */
  readonly ca?: string | Buffer | undefined
  /** Fields of its answer that the request takes along, such as `x-auth-request-user`. Those of the caller are removed. */
  readonly headers?: readonly string[] | undefined
  /** How long it may take to answer. Default 5,000. */
  readonly timeoutMs?: number | undefined
}

export const FORWARD_AUTH_MS = 5000
const MAX_SETS = 32
const MAX_HEADERS = 16
const MAX_LIST = 256
/** Fields that a request needs for itself. */
const NOT_TO_COPY = new Set(['host', 'content-length', 'content-type', 'content-encoding', 'expect', 'x-request-id'])

/** Throws a TypeError that names what is wrong. */
export function checkAccess(sets: readonly AccessOptions[], audience: string, hasTls: boolean): void {
  for (const one of sets) checkSet(one, audience, hasTls)
  demand(sets.length <= MAX_SETS, `access: there are over ${MAX_SETS} sets of rules`)
  demand(sets.filter(one => one.runtimes === undefined).length < 2, 'access: only one set may leave out its runtimes')
  const named = sets.flatMap(({ runtimes }) => [...new Set(runtimes)])
  const twice = named.find((name, i) => named.indexOf(name) < i)
  demand(twice === undefined, `access: ${twice} is in two sets of rules`)
  // One listener asks for the certificate before it knows the runtime.
  const authorities = sets.map(({ clientCa }) => clientCa).filter(one => one !== undefined)
  demand(
    authorities.every(one => isDeepStrictEqual(one, authorities[0])),
    'access: clientCa must be the same in all sets of rules that have one',
  )
}

function checkSet(access: AccessOptions, audience: string, hasTls: boolean): void {
  const { jwt, forwardAuth, clientCa, runtimes = [], open = [] } = access
  const checks = [jwt, forwardAuth, clientCa].filter(check => check !== undefined)
  demand(checks.length > 0, 'access: give jwt, forwardAuth or clientCa: nobody would be checked')
  demand(clientCa === undefined || hasTls, 'access.clientCa needs public.tls')
  demand(access.runtimes?.length !== 0, 'access.runtimes is empty: nobody would be checked; leave it out to check all')
  demand(runtimes.length <= MAX_LIST && runtimes.every(isRuntimeName), 'access.runtimes must be names of runtimes')
  demand(open.length <= MAX_LIST, `access.open has over ${MAX_LIST} entries`)
  for (const path of open) {
    demand(OPEN_PATH.test(path) && readsOneWay(openPath(path)), `access.open: ${path} is no plain [RUNTIME]/PATH`)
  }
  if (jwt !== undefined) {
    demand(jwt.audience !== '' && jwt.audience !== audience, 'access.jwt.audience must be another than auth.audience')
  }
  if (forwardAuth !== undefined) checkForwardAuth(forwardAuth)
}

function checkForwardAuth({ url, headers = [], timeoutMs }: ForwardAuth): void {
  const { protocol = '' } = URL.canParse(url) ? new URL(url) : {}
  demand(protocol === 'http:' || protocol === 'https:', 'access.forwardAuth.url must be an http or https URL')
  demand(headers.length <= MAX_HEADERS, `access.forwardAuth.headers has over ${MAX_HEADERS} names`)
  for (const name of headers) {
    const plain = name.toLowerCase()
    const isOurs = isForwardedName(plain) || isHopByHop(plain) || NOT_TO_COPY.has(plain)
    demand(isToken(name) && !isOurs, `access.forwardAuth.headers: ${name} cannot be copied, since it is ours to set`)
  }
  if (timeoutMs !== undefined) checkDuration('access.forwardAuth.timeoutMs', timeoutMs, 1, 60_000)
}
