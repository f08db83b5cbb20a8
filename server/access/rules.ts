/** One set of access rules: what callers of its runtimes must show, and which paths are open to everybody. */
import { SallyportError } from '../../protocol/base/errors.ts'
import type { Logger } from '../../protocol/base/log.ts'
import type { HeaderList, HttpRequest } from '../../protocol/exchange.ts'
import { hasWhere, isPathName } from '../../protocol/http/headers.ts'
import { isUnder } from '../../protocol/http/problem.ts'
import type { KeySource } from '../auth/key-source.ts'
import { TokenRefused } from '../auth/refusal.ts'
import type { BearerCheck } from './bearer.ts'
import type { Denied, ForwardAuthCheck } from './forward-auth.ts'
import { openPath, openRuntime, readsOneWay } from './open-path.ts'
import type { AccessOptions } from './options.ts'

/** What became of the requests that were checked, since the start. */
export interface AccessStats {
  passed: number
  refused: number
  /** The check itself failed. */
  failed: number
}

interface Checks {
  readonly keys: KeySource | undefined
  readonly bearer: BearerCheck | undefined
  readonly asked: ForwardAuthCheck | undefined
}

export class CallerRules {
  /** `undefined` for all runtimes that no other rules name. */
  readonly runtimes: readonly string[] | undefined
  readonly #checks: Checks
  readonly #certificates: boolean
  readonly #open: ReadonlyArray<{ readonly runtime: string; readonly path: string }>
  readonly #stats: AccessStats
  readonly #logger: Logger

  constructor({ clientCa, runtimes, open = [] }: AccessOptions, checks: Checks, stats: AccessStats, logger: Logger) {
    this.runtimes = runtimes
    this.#checks = checks
    this.#certificates = clientCa !== undefined
    this.#open = open.map(one => ({ runtime: openRuntime(one), path: openPath(one) }))
    this.#stats = stats
    this.#logger = logger
  }

  /** A request with a second path never is. */
  isOpen({ runtime, path, headers }: HttpRequest): boolean {
    const isListed = this.#open.some(
      open => (open.runtime === '' || open.runtime === runtime) && isUnder(open.path, path) && readsOneWay(path),
    )
    return isListed && !hasWhere(headers, isPathName)
  }

  strip(fields: HeaderList): void {
    this.#checks.asked?.strip(fields)
  }

  /** Resolves to `undefined` if the request may pass. Never rejects. */
  async check(request: HttpRequest, sent: HeaderList, gone: AbortSignal): Promise<SallyportError | Denied | undefined> {
    try {
      if (this.#certificates && request.certified !== true) {
        throw new TokenRefused('missing', 'the caller showed no valid certificate')
      }
      const { bearer, asked } = this.#checks
      await bearer?.check(request, sent)
      const denied = await asked?.check(request, sent, gone)
      this.#stats[denied === undefined ? 'passed' : 'refused']++
      return denied
    } catch (error) {
      return this.#failed(error, request, gone)
    }
  }

  #failed(error: unknown, { requestId, runtime }: HttpRequest, gone: AbortSignal): SallyportError {
    if (error instanceof TokenRefused) {
      this.#stats.refused++
      this.#logger.debug({ runtime, requestId, err: { message: `${error.check}: ${error.message}` } }, 'caller refused')
      return new SallyportError('not-authenticated')
    }
    // The caller has gone.
    if (gone.aborted) return new SallyportError('cancelled')
    this.#stats.failed++
    if (error instanceof SallyportError) return error
    const code = 'access-unavailable'
    this.#logger.error({ runtime, requestId, code, err: error }, 'checking a caller failed')
    return new SallyportError(code)
  }

  close(): void {
    this.#checks.keys?.close()
    this.#checks.asked?.close()
  }
}
