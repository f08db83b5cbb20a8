import type { Generator } from '../lib/generator.ts'
import type { Section } from '../lib/report.ts'
import type { Road } from '../roads/road.ts'

export interface Bench {
  readonly mode: 'smoke' | 'quick' | 'full'
  readonly rounds: number
  /** How long one round of a load lasts. */
  readonly roundMs: number
  readonly generator: Generator
  readonly upstreamPort: number
  readonly roads: readonly Road[]
  readonly progress: (text: string) => void
}

export interface Scenario {
  readonly name: string
  readonly title: string
  run(bench: Bench): Promise<Section[]>
}
