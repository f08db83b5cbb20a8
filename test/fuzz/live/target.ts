import { mutate } from '../mutate.ts'
import { Script } from '../script.ts'
import type { Target } from '../target.ts'
import { LIVE_MS, Worlds } from './world.ts'

interface LiveWorld {
  check(): Promise<void>
  stop(): Promise<void>
}

/** A target whose inputs are scripts for a hostile peer in a live world, which must be at rest behind each. */
export function liveTarget<W extends LiveWorld>(
  name: string,
  start: () => Promise<W>,
  play: (world: W, script: Script) => Promise<void>,
): Target {
  const worlds = new Worlds(start)
  return {
    name,
    mostMs: LIVE_MS,
    generate(random) {
      const script = random.bytes(random.between(8, 300))
      return random.oneIn(2) ? script : mutate(script, random)
    },
    execute: input => worlds.play(world => play(world, new Script(input))),
    stop: () => worlds.stop(),
  }
}
