/**
 * The layer that lets a request on to its runtime only if its caller may call: by a certificate, a token, or the word of
 * another service. What cannot be checked is refused. Without it requests pass as they are.
 */
import { SallyportError, toSallyportError } from '../../protocol/base/errors.ts'
import { discarding, guardWith } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { Handler, HeaderList, HttpRequest, RequestSink, ResponseSink } from '../../protocol/exchange.ts'
import { answerPreflight, answerProblem, type CorsPolicy, isUnder } from '../../protocol/http/problem.ts'
import { type Layer, PassThrough } from '../../protocol/layer.ts'
import { openKeys } from '../auth/authenticator.ts'
import { TokenRefused } from '../auth/refusal.ts'
import type { Opened } from '../opened.ts'
import type { ResolvedServerOptions } from '../options.ts'
import { BearerCheck } from './bearer.ts'
import { type Denied, ForwardAuthCheck } from './forward-auth.ts'
import { isOverride, openPath, openRuntime, readsOneWay } from './open-path.ts'
import type { AccessOptions } from './options.ts'

/** What became of the requests that were checked, since the start. */
export interface AccessStats {
  passed: number
  refused: number
  /** Who calls could not be checked. */
  failed: number
}

type CorsOf = (request: HttpRequest) => CorsPolicy | undefined

/** Opens what the checks need; undefined: there are none. */
export async function openAccess(settings: ResolvedServerOptions, opened: Opened): Promise<Access | undefined> {
  const { access, auth, clock, logger } = settings
  if (access === undefined) return undefined
  const { jwt, forwardAuth } = access
  const keys = jwt && (await openKeys(jwt.jwks, logger, opened))
  const bearer = jwt && keys && new BearerCheck(jwt, keys, auth.clockToleranceS, clock)
  const asked = forwardAuth && opened.add(new ForwardAuthCheck(forwardAuth))
  const close = () => {
    keys?.close()
    asked?.close()
  }
  return new Access(access, { bearer, asked, close }, logger)
}

interface Checks {
  readonly bearer: BearerCheck | undefined
  readonly asked: ForwardAuthCheck | undefined
  close(): void
}

export class Access {
  readonly stats: AccessStats = { passed: 0, refused: 0, failed: 0 }
  readonly #checks: Checks
  readonly #certificates: boolean
  readonly #runtimes: ReadonlySet<string> | undefined
  readonly #open: ReadonlyArray<{ readonly runtime: string; readonly path: string }>
  readonly #logger: Logger

  constructor({ clientCa, runtimes, open = [] }: AccessOptions, checks: Checks, logger: Logger) {
    this.#checks = checks
    this.#certificates = clientCa !== undefined
    this.#runtimes = runtimes && new Set(runtimes)
    this.#open = open.map(one => ({ runtime: openRuntime(one), path: openPath(one) }))
    this.#logger = logger
  }

  /** Whether the caller has to be checked. */
  covers({ runtime, path, headers }: HttpRequest): boolean {
    if (this.#runtimes?.has(runtime!) === false) return false
    const isOpen = this.#open.some(
      open => (open.runtime === '' || open.runtime === runtime) && isUnder(open.path, path) && readsOneWay(path),
    )
    return !isOpen || headers.some((name, i) => i % 2 === 0 && isOverride(name))
  }

  /** Also of what is open: those behind would believe it. Returns the head as it came, to judge by. */
  strip(request: HttpRequest): HeaderList {
    const { asked } = this.#checks
    if (asked === undefined) return request.headers
    const sent = [...request.headers]
    asked.strip(request.headers)
    return sent
  }

  stripTrailers(trailers: HeaderList): void {
    this.#checks.asked?.strip(trailers)
  }

  /** Undefined: the request may go on. Never rejects. */
  async judge(request: HttpRequest, sent: HeaderList, gone: AbortSignal): Promise<SallyportError | Denied | undefined> {
    try {
      if (this.#certificates && request.certified !== true) {
        throw new TokenRefused('missing', 'the caller showed no certificate that is valid')
      }
      const { bearer, asked } = this.#checks
      await bearer?.check(request, sent)
      const denied = await asked?.check(request, sent, gone)
      this.stats[denied === undefined ? 'passed' : 'refused']++
      return denied
    } catch (error) {
      return this.#failed(error, request, gone)
    }
  }

  #failed(error: unknown, { requestId, runtime }: HttpRequest, gone: AbortSignal): SallyportError {
    if (error instanceof TokenRefused) {
      this.stats.refused++
      this.#logger.debug(
        { runtime, requestId, err: { message: `${error.check}: ${error.message}` } },
        'a caller is refused',
      )
      return new SallyportError('not-authenticated')
    }
    // Nobody waits for the answer.
    if (gone.aborted) return new SallyportError('cancelled')
    this.stats.failed++
    if (error instanceof SallyportError) return error
    this.#logger.error({ runtime, requestId, err: error }, 'who calls could not be checked')
    return new SallyportError('access-unavailable')
  }

  close(): void {
    this.#checks.close()
  }
}

/** Lets on what may go on; see {@link Access}. */
export function access(rules: Access | undefined, corsOf: CorsOf): Layer {
  if (rules === undefined) return next => next
  return next => (request, response) => {
    const sent = rules.strip(request)
    if (!rules.covers(request)) return new StrippedExchange(response, rules).pass(next, request)
    const policy = request.method === 'OPTIONS' ? corsOf(request) : undefined
    // A browser asks without any credentials whether it may send some.
    if (policy !== undefined && answerPreflight(response, request, policy)) return discarding(response)
    return new CheckedExchange(response, rules).check(request, sent, next, corsOf)
  }
}

class StrippedExchange extends PassThrough {
  protected readonly rules: Access

  constructor(response: ResponseSink, rules: Access) {
    super(response)
    this.rules = rules
  }

  override requestEnd(trailers: HeaderList): void {
    this.rules.stripTrailers(trailers)
    super.requestEnd(trailers)
  }
}

class CheckedExchange extends StrippedExchange {
  readonly #gone = new AbortController()

  check(request: HttpRequest, sent: HeaderList, next: Handler, corsOf: CorsOf): this {
    const guard = guardWith(error => this.responseAbort(toSallyportError(error)))
    const judged = guard((verdict: SallyportError | Denied | undefined) => {
      const handler: Handler = verdict === undefined ? next : (...exchange) => deny(verdict, corsOf, ...exchange)
      this.pass(handler, request)
    })
    const failed = guard((error: unknown) => this.responseAbort(toSallyportError(error)))
    this.rules.judge(request, sent, this.#gone.signal).then(judged, failed)
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
  if (!(verdict instanceof SallyportError)) verdict.answer(request, response)
  else {
    const extra = verdict.reason === 'not-authenticated' ? ['www-authenticate', 'Bearer'] : []
    answerProblem(response, request, verdict, corsOf(request), extra)
  }
  return discarding(response)
}
