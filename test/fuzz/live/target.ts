import { mutate } from '../mutate.ts'
import { FuzzScript } from '../script.ts'
import type { FuzzTarget } from '../target.ts'
import { LIVE_MS, Worlds } from './world.ts'

interface LiveWorld {
  check(): Promise<void>
  stop(): Promise<void>
}

/** A target whose inputs are scripts for a hostile peer in a live world, which must be idle again after each. */
export function liveTarget<W extends LiveWorld>(
  name: string,
  start: () => Promise<W>,
  play: (world: W, script: FuzzScript) => Promise<void>,
): FuzzTarget {
  const worlds = new Worlds(start)
  return {
    name,
    mostMs: LIVE_MS,
    generate(random) {
      const script = random.bytes(random.between(8, 300))
      return random.oneIn(2) ? script : mutate(script, random)
    },
    execute: input => worlds.play(world => play(world, new FuzzScript(input))),
    stop: () => worlds.stop(),
  }
}
