/**
 * Keeps compiled code during quiet periods. Eight seconds after a collection, and thirty after the start of the process, V8
 * begins to save memory if little is allocated: it drops the shapes of objects that live as long as a request, all code compiled
 * for them, and most of the young generation. The next second of requests then costs twice as much. We let V8 do so only after
 * ten quiet minutes. This is for our own processes; a library leaves the heap of its host alone.
 */
import { setFlagsFromString } from 'node:v8'
import { logGuard } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'

const QUIET_MS = 10 * 60_000
/** By then, the timer that V8 sets at its start has run out. Its length can no longer be changed. */
const START_MS = 60_000
/** V8's default. */
const COLLECTIONS = 2
/** Older versions do not know the flags. */
const MIN_NODE_MAJOR = 26

export function keepCompiledCode(logger: Logger): void {
  if (Number.parseInt(process.versions.node, 10) < MIN_NODE_MAJOR) return
  setFlagsFromString(`--memory-reducer-delay-ms=${QUIET_MS}`)
  setFlagsFromString('--memory-reducer-gc-count=0')
  const guard = logGuard(logger, 'a flag of V8 could not be set')
  const restore = guard(() => setFlagsFromString(`--memory-reducer-gc-count=${COLLECTIONS}`))
  setTimeout(restore, START_MS).unref()
}
