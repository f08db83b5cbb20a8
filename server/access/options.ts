/** Options about who may call: what the edge checks, and for which requests. */
import { isDeepStrictEqual } from 'node:util'
import { checkAuthoritiesOf } from '../../protocol/base/certificates.ts'
import { checkDuration } from '../../protocol/base/durations.ts'
import { demand } from '../../protocol/base/limit.ts'
import { checkMembers, type Members } from '../../protocol/base/members.ts'
import { isRuntimeName } from '../../protocol/base/names.ts'
import { dashed, isForwardedName, isHopByHop, isMountName, isToken } from '../../protocol/http/headers.ts'
import type { KeyOrigin } from '../auth/key-source.ts'
import { checkKeyOrigin } from '../key-origin.ts'
import { type Authorities, checkGiven } from '../tls.ts'
import { OPEN_PATH, openPath, readsOneWay } from './open-path.ts'

/** What callers must show before a request passes to its runtime. All checks that are set must pass. */
export interface AccessOptions {
  /** A token (JWT) in `Authorization: Bearer`. */
  readonly jwt?: CallerTokens | undefined
  /** Another service decides who may call. */
  readonly forwardAuth?: ForwardAuth | undefined
  /** Authorities of callers' certificates (PEM, or a file, which is watched). Needs `public.tls`. */
  readonly clientCa?: Authorities | undefined
  /** Runtimes that these rules apply to. Default: all that no other set of rules names. */
  readonly runtimes?: readonly string[] | undefined
  /**
   * Paths that everybody may call: `/webhooks` for that path and everything below it, at all runtimes, or `demo/webhooks` at one
   * runtime. An ambiguous path, such as one with `%`, `;`, `//` or `..`, is never open.
   */
  readonly open?: readonly string[] | undefined
}

/** Which tokens are accepted from callers. */
export interface CallerTokens {
  /** As for tunnel clients, but preferably another key set. */
  readonly jwks: KeyOrigin
  /** The exact `iss` claim, if given. */
  readonly issuer?: string | undefined
  /** The exact `aud` claim. Required, and different from that of tunnel clients. */
  readonly audience: string
  /** Claim that must name the runtime, alone or in a list. Default: none, so a token is good for all runtimes. */
  readonly runtimeClaim?: string | undefined
  /** Leave the token in the request. Default false: the runtime does not see it. */
  readonly forward?: boolean | undefined
}

/** The service that is asked about each request, with `GET url` and the caller's head. */
export interface ForwardAuth {
  readonly url: string
  /** Authorities of its certificate (PEM), for an https URL only. Default: the system's authorities. */
  readonly ca?: string | Buffer | undefined
  /** Fields of its answer that are copied to the request, such as `x-auth-request-user`. The caller's own are removed. */
  readonly headers?: readonly string[] | undefined
  /** How long it may take to answer. Default 5,000. */
  readonly timeoutMs?: number | undefined
}

const MEMBERS: Members<AccessOptions> = {
  jwt: 'object',
  forwardAuth: 'object',
  clientCa: 'content',
  runtimes: 'strings',
  open: 'strings',
}
const JWT: Members<CallerTokens> = {
  jwks: 'object',
  issuer: 'string',
  audience: 'string',
  runtimeClaim: 'string',
  forward: 'boolean',
}
const FORWARD_AUTH: Members<ForwardAuth> = { url: 'string', ca: 'content', headers: 'strings', timeoutMs: 'number' }

export const FORWARD_AUTH_MS = 5000
const MAX_SETS = 32
const MAX_HEADERS = 16
const MAX_LIST = 256
/** Fields that must stay the request's own. */
const NOT_TO_COPY = new Set(['host', 'content-length', 'content-type', 'content-encoding', 'expect', 'x-request-id'])

/** Throws a TypeError that names what is wrong. */
export function checkAccess(sets: readonly AccessOptions[], audience: string, hasTls: boolean): void {
  for (const one of sets) checkSet(one, audience, hasTls)
  demand(sets.length <= MAX_SETS, `access: there are over ${MAX_SETS} sets of rules`)
  demand(sets.filter(one => one.runtimes === undefined).length < 2, 'access: only one set may leave out its runtimes')
  const named = sets.flatMap(({ runtimes }) => [...new Set(runtimes)])
  const twice = named.find((name, i) => named.indexOf(name) < i)
  demand(twice === undefined, `access: ${twice} is in two sets of rules`)
  // The listener asks for a certificate before it knows the runtime.
  const authorities = sets.map(({ clientCa }) => clientCa).filter(one => one !== undefined)
  demand(
    authorities.every(one => isDeepStrictEqual(one, authorities[0])),
    'access: clientCa must be the same in all sets of rules that have one',
  )
}

function checkSet(access: AccessOptions, audience: string, hasTls: boolean): void {
  checkMembers('access', access, MEMBERS)
  checkMembers('access.jwt', access.jwt, JWT)
  checkMembers('access.forwardAuth', access.forwardAuth, FORWARD_AUTH)
  const { jwt, forwardAuth, clientCa, runtimes = [], open = [] } = access
  const checks = [jwt, forwardAuth, clientCa].filter(check => check !== undefined)
  demand(checks.length > 0, 'access: give jwt, forwardAuth or clientCa; without one of these, nobody would be checked')
  checkGiven('access.clientCa', clientCa)
  demand(clientCa === undefined || hasTls, 'access.clientCa needs public.tls')
  demand(access.runtimes?.length !== 0, 'access.runtimes is empty: nobody would be checked; leave it out to check all')
  demand(runtimes.length <= MAX_LIST && runtimes.every(isRuntimeName), 'access.runtimes must be names of runtimes')
  demand(open.length <= MAX_LIST, `access.open has over ${MAX_LIST} entries`)
  for (const path of open) {
    demand(!/[*{}]|\/[:<]/.test(path), `access.open: ${path} has a pattern; what is below a path is open with it`)
    demand(OPEN_PATH.test(path) && readsOneWay(openPath(path)), `access.open: ${path} is not a plain [RUNTIME]/PATH`)
  }
  if (jwt !== undefined) {
    checkKeyOrigin('access.jwt.jwks', jwt.jwks)
    demand((jwt.audience ?? '') !== '', 'access.jwt.audience is required')
    demand(jwt.audience !== audience, 'access.jwt.audience must differ from auth.audience')
  }
  if (forwardAuth !== undefined) checkForwardAuth(forwardAuth)
}

function checkForwardAuth({ url, ca, headers = [], timeoutMs }: ForwardAuth): void {
  const { protocol = '' } = URL.canParse(url) ? new URL(url) : {}
  demand(protocol === 'http:' || protocol === 'https:', 'access.forwardAuth.url must be an http or https URL')
  checkAuthoritiesOf(protocol === 'https:', 'access.forwardAuth.ca', ca, 'an https URL')
  demand(headers.length <= MAX_HEADERS, `access.forwardAuth.headers has over ${MAX_HEADERS} names`)
  for (const name of headers) {
    const plain = dashed(name.toLowerCase())
    const isOurs = isForwardedName(plain) || isMountName(plain) || isHopByHop(plain) || NOT_TO_COPY.has(plain)
    demand(!name.includes('*'), `access.forwardAuth.headers: ${name} has a "*", which stands for nothing here`)
    demand(isToken(name) && !isOurs, `access.forwardAuth.headers: ${name} cannot be copied, since it is ours to set`)
  }
  if (timeoutMs !== undefined) checkDuration('access.forwardAuth.timeoutMs', timeoutMs, 1, 60_000)
}
