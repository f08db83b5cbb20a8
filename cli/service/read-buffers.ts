/**
 * Bounds the garbage that forwarding bodies makes. Every read of a socket allocates a buffer outside V8's heap, and V8 lets
 * 64 MiB of them pile up before it collects. A process then grows by that much for one large body, and spends half of its time
 * on fresh pages. This file collects young objects after every MiB, with one thread, since waking helper threads costs more than
 * so little work. It is for our own processes; a library leaves the heap of its host alone.
 */
import { getHeapStatistics, type HeapInfo, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { logGuard } from '../../protocol/base/guard.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'

const GARBAGE_BYTES = 1024 * 1024
/** If objects make as much garbage as buffers do, V8 collects often enough by itself. */
const BUFFERS_PER_OBJECTS = 2
/** V8 collects after a MiB of young objects. It counts allocations by blocks, so a smaller drop is not a sign of a collection. */
const COLLECTED_BYTES = 512 * 1024
/** How soon to look again: while bytes flow, shortly after, and while nothing happens. */
const BUSY_MS = 5
const CALM_MS = 10
const IDLE_MS = 100
/** After this many looks without flowing bytes, the process counts as idle. */
const MAX_CALM_CHECKS = 100
const FLOWING_BYTES = 64 * 1024

/** Collects until the returned function is called. */
export function collectReadBuffers(logger: Logger = noLogger): () => void {
  const guard = logGuard(logger, 'garbage from reads is no longer collected')
  const collect = youngCollection()
  let waitMs = BUSY_MS
  let last = getHeapStatistics()
  /** Bytes that the last collection left, or fewer. */
  let kept = last
  let calmChecks = 0
  const check = guard(() => {
    let now = getHeapStatistics()
    const flows = Math.abs(now.external_memory - last.external_memory) > FLOWING_BYTES
    const buffers = now.external_memory - kept.external_memory
    // A second collection right after V8's own would only promote live objects, including those of requests in progress.
    const freedBytes = last.used_heap_size + allocatedBytes(last, now) - now.used_heap_size
    const wasCollected = freedBytes > COLLECTED_BYTES || now.used_heap_size < kept.used_heap_size
    if (buffers < 0 || wasCollected) kept = now
    else if (buffers > Math.max(GARBAGE_BYTES, BUFFERS_PER_OBJECTS * (now.used_heap_size - kept.used_heap_size))) {
      collect()
      now = getHeapStatistics()
      kept = now
    }
    last = now
    calmChecks = flows ? 0 : calmChecks + 1
    const nextMs = flows ? BUSY_MS : calmChecks < MAX_CALM_CHECKS ? CALM_MS : IDLE_MS
    // This runs up to 200 times per second. Reusing the timer makes no garbage.
    if (nextMs === waitMs) timer.refresh()
    else timer = setTimeout(check, nextMs).unref()
    waitMs = nextMs
  })
  let timer = setTimeout(check, waitMs).unref()
  return () => clearTimeout(timer)
}

/** Bytes allocated on the heap from `before` to `now`. 0 before Node 26, which does not count them; there only a drop shows a collection. */
function allocatedBytes(before: HeapInfo, now: HeapInfo): number {
  const bytes = (info: HeapInfo & { total_allocated_bytes?: number }) => info.total_allocated_bytes ?? 0
  return bytes(now) - bytes(before)
}

/** V8 exposes its collector only to contexts that are created while the flag is set. */
function youngCollection(): () => void {
  setFlagsFromString('--no-parallel-scavenge')
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as NodeJS.GCFunction
  setFlagsFromString('--no-expose-gc')
  return () => gc({ type: 'minor', execution: 'sync' })
}
