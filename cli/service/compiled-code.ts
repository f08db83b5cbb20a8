/**
 * Keeps compiled code through quiet moments. Eight seconds after a collection, and thirty after the start of the process, V8
 * begins to save memory where little is allocated: it drops the shapes of objects that live as long as a request, all code that
 * was compiled for them, and most of the young generation. The next second of requests then costs twice as much. Ten minutes are
 * quiet enough for that. For processes of our own; a library leaves its host's heap alone.
 */
import { setFlagsFromString } from 'node:v8'
import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

const QUIET_MS = 10 * 60_000
/** The timer that V8 sets when it starts has run out by then; how long it takes cannot be changed any more. */
const START_MS = 60_000
/** V8's own number. */
const COLLECTIONS = 2
/** Older ones do not know the flags. */
const LEAST_NODE = 26

export function keepCompiledCode(logger: Logger): void {
  if (Number.parseInt(process.versions.node, 10) < LEAST_NODE) return
  setFlagsFromString(`--memory-reducer-delay-ms=${QUIET_MS}`)
  setFlagsFromString('--memory-reducer-gc-count=0')
  const guard = logGuard(logger, 'a flag of V8 could not be set')
  const restore = guard(() => setFlagsFromString(`--memory-reducer-gc-count=${COLLECTIONS}`))
  setTimeout(restore, START_MS).unref()
}
