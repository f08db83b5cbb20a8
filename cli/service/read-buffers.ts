/**
 * Bounds the garbage that passing bodies on makes. Every read of a socket makes a buffer outside of V8's heap, and V8
 * lets 64 MiB of them pile up before it looks: a process grows by as much for one large body, and spends half of its
 * time on fresh pages. Here the young ones are collected when a MiB has come, by one thread: helpers cost more to
 * wake than so little work takes. It is for processes of our own; a library leaves its host's heap alone.
 */
import { getHeapStatistics, type HeapInfo, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { logGuard } from '../../protocol/base/guard.ts'
import { type Logger, noLogger } from '../../protocol/base/log.ts'

const GARBAGE_BYTES = 1024 * 1024
/** Where objects make as much garbage as buffers, V8 collects often enough by itself. */
const BUFFERS_PER_OBJECTS = 2
/** V8 begins to collect with a MiB of young objects; it counts what is allocated by blocks, so less than this says nothing. */
const COLLECTED_BYTES = 512 * 1024
/** How soon to look again: while bytes flow, soon after, and while nothing happens. */
const BUSY_MS = 5
const CALM_MS = 10
const IDLE_MS = 100
/** So many looks without a flow are idleness. */
const CALM_LOOKS = 100
const FLOWING_BYTES = 64 * 1024

/** Collects until the function that it returns is called. */
export function collectReadBuffers(logger: Logger = noLogger): () => void {
  const guard = logGuard(logger, 'garbage of reads is not collected any more')
  const collect = youngCollection()
  let waitMs = BUSY_MS
  let last = getHeapStatistics()
  /** What the last collection left, or less. */
  let kept = last
  let calmLooks = 0
  const look = guard(() => {
    let now = getHeapStatistics()
    const flows = Math.abs(now.external_memory - last.external_memory) > FLOWING_BYTES
    const buffers = now.external_memory - kept.external_memory
    // A second collection right behind V8's own would only age what lives: requests under way would be old from then on.
    const freedBytes = last.used_heap_size + allocatedBytes(last, now) - now.used_heap_size
    const wasCollected = freedBytes > COLLECTED_BYTES || now.used_heap_size < kept.used_heap_size
    if (buffers < 0 || wasCollected) kept = now
    else if (buffers > Math.max(GARBAGE_BYTES, BUFFERS_PER_OBJECTS * (now.used_heap_size - kept.used_heap_size))) {
      collect()
      now = getHeapStatistics()
      kept = now
    }
    last = now
    calmLooks = flows ? 0 : calmLooks + 1
    const nextMs = flows ? BUSY_MS : calmLooks < CALM_LOOKS ? CALM_MS : IDLE_MS
    // Up to 200 times a second: a timer that stays makes no garbage.
    if (nextMs === waitMs) timer.refresh()
    else timer = setTimeout(look, nextMs).unref()
    waitMs = nextMs
  })
  let timer = setTimeout(look, waitMs).unref()
  return () => clearTimeout(timer)
}

/** On the heap, from `before` to `now`; 0 on a Node that does not count it (before 26), where only a drop shows a collection. */
function allocatedBytes(before: HeapInfo, now: HeapInfo): number {
  const bytes = (info: HeapInfo & { total_allocated_bytes?: number }) => info.total_allocated_bytes ?? 0
  return bytes(now) - bytes(before)
}

/** V8 shows its collector to contexts that are made while the flag is set. */
function youngCollection(): () => void {
  setFlagsFromString('--no-parallel-scavenge')
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as NodeJS.GCFunction
  setFlagsFromString('--no-expose-gc')
  return () => gc({ type: 'minor', execution: 'sync' })
}
