/**
 * The one place where calls that enter our code are caught. Node calls us through events, timers and promises, an embedder
 * through hooks, listeners and handlers; what is thrown out of such a call would end the process. Each entry says what ends
 * in its place, and that is never more than a connection or a session:
 *
 * | entry                                       | goes through                    | what ends                        |
 * |---------------------------------------------|---------------------------------|----------------------------------|
 * | event, timer, promise of Node               | a {@link Guard} of its owner    | the owner: connection, session   |
 * | the same, once per request                  | a {@link stepOf} of its module  | the owner: exchange              |
 * | the same, where nothing can end             | a {@link logGuard}              | nothing; the log tells           |
 * | promise of ours that nobody waits for       | {@link detached}                | nothing; the log tells           |
 * | handler of requests, and its sink           | {@link callHandler}             | its exchange                     |
 * | hook or listener of an embedder             | {@link hook}                    | nothing; the log tells           |
 * | logger of an embedder                       | {@link safeLogger}              | nothing                          |
 *
 * `test/security/entries.test.ts` finds entries that go around it.
 */

import type { Handler, HttpRequest, RequestSink, ResponseSink } from '../exchange.ts'
import { type ErrorCode, errorOf, SallyportError } from './errors.ts'
import { type Logger, noLogger } from './log.ts'
import { PacedLogger } from './paced-logger.ts'

/** Wraps a function that Node calls. If it throws, the guard's owner ends. One wrapper per listener, none per event. */
export type Guard = <Args extends readonly [a?: unknown, b?: unknown, c?: unknown]>(
  step: (...args: Args) => void,
) => (...args: Args) => void

/** A guard whose owner ends through `failed`, which must not throw, and may be called again after the end. */
export function guardWith(failed: (error: unknown) => void): Guard {
  // Plain parameters: an array for the rest would be made for each event. No event of Node that we hear has more.
  const guard = (step: (a: unknown, b: unknown, c: unknown) => void) => (a: unknown, b: unknown, c: unknown) => {
    try {
      step(a, b, c)
    } catch (error) {
      failed(error)
    }
  }
  return guard as unknown as Guard
}

/** A guard for work that has nothing to end, such as a listening server. The log says that `what` failed. */
export function logGuard(logger: Logger, what: string): Guard {
  return guardWith(error => tellDefect(logger, what, error))
}

/**
 * The end of an owner whose own code threw: the log tells of it, and of the steps to the end each is taken, whatever one
 * before it threw. For `failed` of {@link guardWith}, and for {@link Failing}.
 */
export function endFor(error: unknown, logger: Logger, what: string, ...steps: readonly (() => void)[]): void {
  tellDefect(logger, what, error)
  for (const step of steps) {
    try {
      step()
    } catch (again) {
      tellDefect(logger, what, again)
    }
  }
}

/** Something that ends when code of its own throws: as `failed` of {@link guardWith}. */
export interface Failing {
  threw(error: unknown): void
}

/**
 * As a {@link Guard}, for what happens once per request: made once per module and given its owner, so that it costs no
 * closure: `setTimeout(late, ms, this)`.
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

/**
 * For a timer: the step is taken behind what the sockets have by then. Timers come first, and if this process stood still, all that came in
 * time, or was taken, waits there. The step is taken even if the timer was cleared meanwhile.
 */
export function heardFirst<Owner>(guarded: (owner: Owner) => void): (owner: Owner) => void {
  return owner => {
    setImmediate(guarded, owner)
  }
}

/** Starts work that nobody waits for. If it fails, that is logged and ends nothing. */
export function detached(logger: Logger, what: string, work: Promise<unknown>): void {
  work.catch((error: unknown) => tellDefect(logger, what, error))
}

/**
 * An embedder's function as we call it. What it throws, or what its promise rejects with, is logged under its name and ends
 * nothing. One that is absent stays absent.
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
  const failed = (error: unknown) => tellDefect(logger, `${name} threw`, error)
  // Plain parameters, as above: no hook has more.
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

/** Handles the rejection if a hook that should return nothing returned a promise. */
export function followed(result: unknown, failed: (error: unknown) => void): void {
  if (typeof result !== 'object' || result === null) return
  if ('then' in result && typeof result.then === 'function') result.then(undefined, failed)
}

/**
 * An embedder's logger: what it throws reaches nobody, since there is nobody left to tell; and no line comes more often than
 * {@link PacedLogger} has it.
 */
export function safeLogger(logger: Logger | undefined): Logger {
  if (logger === undefined || logger === noLogger || logger instanceof PacedLogger) return logger ?? noLogger
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
export function tellDefect(logger: Logger, what: string, error: unknown): void {
  const known = errorOf(error)
  logger.error({ err: { message: known.message, stack: known === error ? known.stack : undefined } }, what)
}

/** A handler never throws; one that does nevertheless, or gives no sink, costs its own exchange, for `reason`. */
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
    followed(sink, error => tellDefect(logger, 'a handler threw', error))
    throw new TypeError('a handler returned no sink')
  } catch (error) {
    const thrown = errorOf(error)
    const isOurs = thrown instanceof SallyportError
    const known = isOurs ? thrown : new SallyportError(reason, 'a handler threw', { cause: error })
    if (!isOurs) tellDefect(logger, 'a handler threw', error)
    response.responseAbort(known)
    return discarding(response)
  }
}

/**
 * The end of a request that nobody takes: it gives credit for what still comes, and is all that a handler that has answered needs to
 * return.
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

/** For what may fail, and is told elsewhere. */
export function ignore(): void {}
