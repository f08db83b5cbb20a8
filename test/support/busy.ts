import { availableParallelism, loadavg } from 'node:os'

/** As much as our own suite gives each core to do. */
const USUAL = 3
const MOST = 5

/** Keeps this thread busy for that long. */
export function work(ms: number): void {
  const until = performance.now() + ms
  while (performance.now() < until);
}

/** A time within which something has to be done: a lease that is renewed, a query that is answered. See {@link slowness}. */
export function unhurried(ms: number): number {
  return Math.round(ms * slowness())
}

/** How many times longer things may take, since the machine has that much more to do than usual. */
export function slowness(): number {
  const [load = 0] = loadavg()
  return Math.min(MOST, Math.max(1, load / availableParallelism() / USUAL))
}
