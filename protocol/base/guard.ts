/**
 * The one place where errors of calls into our code are caught. Node calls us through events, timers and promises; an embedder
 * calls us through hooks, listeners and handlers. An error that escapes such a call would end the process. Each kind of entry
 * names what ends instead, which is never more than a connection or a session:
 *
 * | entry                                       | goes through                    | what ends                        |
 * |---------------------------------------------|---------------------------------|----------------------------------|
 * | event, timer, promise of Node               | a {@link Guard} of its owner    | the owner: connection, session   |
 * | the same, once per request                  | a {@link stepOf} of its module  | the owner: exchange              |
 * | the same, where nothing can end             | a {@link logGuard}              | nothing; it is logged            |
 * | promise of ours that nobody waits for       | {@link detached}                | nothing; it is logged            |
 * | event or timer that starts such work        | {@link starting}                | nothing; it is logged            |
 * | handler of requests, and its sink           | {@link callHandler}             | its exchange                     |
 * | hook or listener of an embedder             | {@link hook}                    | nothing; it is logged            |
 * | logger of an embedder                       | {@link safeLogger}              | nothing                          |
 *
 * `test/security/entries.test.ts` finds entries that bypass this file.
 */

import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../exchange.ts'
import { type ErrorCode, errorOf, SallyportError } from './errors.ts'
import { type Logger, noLogger } from './log.ts'
import { PacedLogger } from './paced-logger.ts'

/** Wraps a function that Node calls. If it throws, the guard's owner ends. Costs one wrapper per listener, and none per event. */
export type Guard = <Args extends readonly [a?: unknown, b?: unknown, c?: unknown]>(
  step: (...args: Args) => void,
) => (...args: Args) => void

/** A guard that calls `failed` to end its owner. `failed` must not throw, and may be called again after the end. */
export function guardWith(failed: (error: unknown) => void): Guard {
  // Plain parameters, since rest parameters would allocate an array per event. No Node event that we listen to has more.
  const guard = (step: (a: unknown, b: unknown, c: unknown) => void) => (a: unknown, b: unknown, c: unknown) => {
    try {
      step(a, b, c)
    } catch (error) {
      failed(error)
    }
  }
  return guard as unknown as Guard
}

/** A guard for work that has nothing to end, such as a listening server. Logs that `what` failed. */
export function logGuard(logger: Logger, what: string): Guard {
  return guardWith(error => logDefect(logger, what, error))
}

/**
 * Ends an owner whose own code threw: logs the error and runs every step, even if an earlier one throws. For `failed` of
 * {@link guardWith}, and for {@link Failing}.
 */
export function endFor(error: unknown, logger: Logger, what: string, ...steps: readonly (() => void)[]): void {
  logDefect(logger, what, error)
  for (const step of steps) {
    try {
      step()
    } catch (again) {
      logDefect(logger, what, again)
    }
  }
}

/** An object that ends when its own code throws; `threw` is like `failed` of {@link guardWith}. */
export interface Failing {
  threw(error: unknown): void
}

/**
 * Like a {@link Guard}, for steps that happen once per request. It is made once per module and gets its owner as an argument,
 * so it costs no closure: `setTimeout(late, ms, this)`.
 */
export function stepOf<Owner extends Failing>(step: (owner: Owner) => void): (owner: Owner) => void {
  return owner => {
    try {
      step(owner)
    } catch (error) {
      owner.threw(error)
    }
  }
}

/** For work that nobody waits for. If it fails, that is logged and ends nothing. */
export function detached(logger: Logger, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => logDefect(logger, what, error))
}

/** For an event or a timer that starts work that nobody waits for. */
export function starting(logger: Logger, what: string, work: () => Promise<unknown>): () => void {
  return logGuard(logger, what)(() => detached(logger, what, work()))
}

/**
 * Wraps an embedder's function; anything else is a TypeError. If it throws or its promise rejects, that is logged under its name and
 * ends nothing. Undefined stays undefined.
 */
export function hook<Args extends readonly unknown[]>(
  name: string,
  call: (...args: Args) => unknown,
  logger: Logger,
): (...args: Args) => void
export function hook<Args extends readonly unknown[]>(
  name: string,
  call: ((...args: Args) => unknown) | undefined,
  logger: Logger,
): ((...args: Args) => void) | undefined
export function hook<Args extends readonly unknown[]>(
  name: string,
  call: ((...args: Args) => unknown) | undefined,
  logger: Logger,
): ((...args: Args) => void) | undefined {
  if (call === undefined) return undefined
  if (typeof call !== 'function') throw new TypeError(`${name} must be a function`)
  const failed = (error: unknown) => logDefect(logger, `${name} threw`, error)
  // Plain parameters, as above. No hook has more.
  const plain = call as unknown as (a: unknown, b: unknown) => unknown
  const hooked = (a: unknown, b: unknown) => {
    try {
      followed(plain(a, b), failed)
    } catch (error) {
      failed(error)
    }
  }
  return hooked as unknown as (...args: Args) => void
}

/** Handles the rejection if a function that should return nothing returned a promise. */
export function followed(result: unknown, failed: (error: unknown) => void): void {
  if (typeof result !== 'object' || result === null) return
  if ('then' in result && typeof result.then === 'function') result.then(undefined, failed)
}

const LEVELS = ['debug', 'info', 'warn', 'error'] as const

/**
 * Wraps an embedder's logger; anything else is a TypeError. Errors that it throws are dropped, since there is nowhere left to report them, and
 * {@link PacedLogger} limits how often each line is written.
 */
export function safeLogger(logger: Logger | undefined): Logger {
  if (logger === undefined || logger === noLogger || logger instanceof PacedLogger) return logger ?? noLogger
  const isLogger = LEVELS.every(level => typeof logger?.[level] === 'function')
  if (!isLogger) throw new TypeError(`logger must have the functions ${LEVELS.join(', ')}`)
  return new PacedLogger(new SafeLogger(logger))
}

class SafeLogger implements Logger {
  readonly debug: Logger['debug']
  readonly info: Logger['info']
  readonly warn: Logger['warn']
  readonly error: Logger['error']

  constructor(logger: Logger) {
    this.debug = hook('', (fields, message) => logger.debug(fields, message), noLogger)
    this.info = hook('', (fields, message) => logger.info(fields, message), noLogger)
    this.warn = hook('', (fields, message) => logger.warn(fields, message), noLogger)
    this.error = hook('', (fields, message) => logger.error(fields, message), noLogger)
  }
}

/** Logs a defect of ours or of an embedder, with the place where it happened. */
export function logDefect(logger: Logger, what: string, error: unknown): void {
  const known = errorOf(error)
  logger.error({ err: { message: known.message, stack: known === error ? stackOf(known) : undefined } }, what)
}

/** An embedder's `Error.prepareStackTrace` may throw. */
function stackOf(error: Error): string | undefined {
  try {
    return error.stack
  } catch {
    return undefined
  }
}

/** Calls a handler. If it throws, which it should not, or returns no sink, its exchange fails with `reason`. */
export function callHandler(
  handler: Handler,
  request: HttpRequest,
  response: ResponseSink,
  logger: Logger,
  reason: ErrorCode = 'internal',
): RequestSink {
  try {
    const sink = handler(request, response)
    if (typeof sink?.requestData === 'function') return sink
    followed(sink, error => logDefect(logger, 'a handler threw', error))
    throw new TypeError('a handler returned no sink')
  } catch (error) {
    const thrown = errorOf(error)
    const isOurs = thrown instanceof SallyportError
    const known = isOurs ? thrown : new SallyportError(reason, 'a handler threw', { cause: error })
    if (!isOurs) logDefect(logger, 'a handler threw', error)
    response.responseAbort(known)
    return discarding(response)
  }
}

/**
 * A sink that discards a request and gives credit for it. A handler that has already answered can return it.
 *
 * @example
 * ```ts
 * import { discarding, type Layer } from 'sallyport/protocol'
 *
 * const closed: Layer = () => (_request, response) => {
 *   response.responseHead({ status: 503, headers: [], bodyBytes: 0 })
 *   response.responseEnd([])
 *   return discarding(response)
 * }
 * ```
 */
export function discarding(response: ResponseSink): RequestSink {
  return {
    requestData: chunk => response.requestConsumed(chunk.length),
    requestEnd: ignore,
    requestAbort: ignore,
    responseConsumed: ignore,
  }
}

/** For errors that are reported elsewhere. */
export function ignore(): void {}
