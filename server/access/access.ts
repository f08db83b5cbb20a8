/**
 * The layer that lets a request pass to its runtime only if its caller is allowed: by a certificate, a token, or another service's
 * decision. If that cannot be checked, the request is refused. Without access rules, requests pass unchanged.
 */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { discarding, guardWith } from '../../protocol/base/guard.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { answerPreflight, answerProblem, type CorsPolicy } from '../../protocol/http/problem.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { openKeys } from '../auth/authenticator.ts'
import type { Opened } from '../opened.ts'
import type { ResolvedServerOptions } from '../options.ts'
import { BearerCheck } from './bearer.ts'
import { type Denied, ForwardAuthCheck } from './forward-auth.ts'
import type { AccessOptions } from './options.ts'
import { type AccessStats, CallerRules } from './rules.ts'

type CorsOf = (request: HttpRequest) => CorsPolicy | undefined

/** Opens what the checks need. `undefined` if there are no checks. */
export async function openAccess(settings: ResolvedServerOptions, opened: Opened): Promise<Access | undefined> {
  const { access, auth, clock, logger } = settings
  if (access.length === 0) return undefined
  const stats = { passed: 0, refused: 0, failed: 0 }
  const open = async (one: AccessOptions) => {
    const { jwt, forwardAuth } = one
    const keys = jwt && (await openKeys(jwt.jwks, logger, opened))
    const bearer = jwt && keys && new BearerCheck(jwt, keys, auth.clockToleranceS, clock)
    const asked = forwardAuth && opened.add(new ForwardAuthCheck(forwardAuth))
    return new CallerRules(one, { keys, bearer, asked }, stats, logger)
  }
  // Together, since each key set may take as long as its server does not answer.
  return new Access(await Promise.all(access.map(open)), stats)
}

/** The rules of all runtimes. */
export class Access {
  readonly stats: AccessStats
  readonly #rules: readonly CallerRules[]
  readonly #named = new Map<string, CallerRules>()
  readonly #others: CallerRules | undefined

  constructor(rules: readonly CallerRules[], stats: AccessStats) {
    this.#rules = rules
    this.stats = stats
    for (const one of rules) for (const runtime of one.runtimes ?? []) this.#named.set(runtime, one)
    this.#others = rules.find(({ runtimes }) => runtimes === undefined)
  }

  /** The rules that the caller must satisfy. `undefined` if there are none. */
  covering(request: HttpRequest): CallerRules | undefined {
    const rules = this.#named.get(request.runtime!) ?? this.#others
    return rules?.isOpen(request) === false ? rules : undefined
  }

  /**
   * Removes the fields that `forwardAuth` sets, for all runtimes and for open paths, too, since upstreams would trust them. Returns
   * the original head, for the checks.
   */
  strip({ headers }: HttpRequest): HeaderList {
    const sent = [...headers]
    this.stripTrailers(headers)
    return sent
  }

  stripTrailers(fields: HeaderList): void {
    for (const rules of this.#rules) rules.strip(fields)
  }

  close(): void {
    for (const rules of this.#rules) rules.close()
  }
}

/** See the top of this file. */
export function access(all: Access | undefined, corsOf: CorsOf): Layer {
  if (all === undefined) return next => next
  return next => (request, response) => {
    const sent = all.strip(request)
    const rules = all.covering(request)
    if (rules === undefined) return new StrippedExchange(response, all).pass(next, request)
    const policy = request.method === 'OPTIONS' ? corsOf(request) : undefined
    // A browser sends preflights without credentials.
    if (policy !== undefined && answerPreflight(response, request, policy)) return discarding(response)
    return new CheckedExchange(response, all).check(rules, request, sent, next, corsOf)
  }
}

class StrippedExchange extends PassThrough {
  readonly #access: Access

  constructor(response: ResponseSink, all: Access) {
    super(response)
    this.#access = all
  }

  override requestEnd(trailers: HeaderList): void {
    this.#access.stripTrailers(trailers)
    super.requestEnd(trailers)
  }
}

class CheckedExchange extends StrippedExchange {
  readonly #gone = new AbortController()

  check(rules: CallerRules, request: HttpRequest, sent: HeaderList, next: Handler, corsOf: CorsOf): this {
    const guard = guardWith(error => this.responseAbort(toSallyportError(error)))
    const checked = guard((verdict: SallyportError | Denied | undefined) => {
      const handler: Handler = verdict === undefined ? next : (...exchange) => deny(verdict, corsOf, ...exchange)
      this.pass(handler, request)
    })
    const failed = guard((error: unknown) => this.responseAbort(toSallyportError(error)))
    rules.check(request, sent, this.#gone.signal).then(checked, failed)
    return this
  }

  protected override over(): void {
    this.#gone.abort()
  }
}

function deny(
  verdict: SallyportError | Denied,
  corsOf: CorsOf,
  request: HttpRequest,
  response: ResponseSink,
): RequestSink {
  const cors = corsOf(request)
  if (!(verdict instanceof SallyportError)) verdict.answer(request, response, cors)
  else {
    const extra = verdict.reason === 'not-authenticated' ? ['www-authenticate', 'Bearer'] : []
    answerProblem(response, request, verdict, cors, extra)
  }
  return discarding(response)
}
