/**
 * CORS policies that clients published in `hello`. They are kept after the client has gone, so that a browser can read why a
 * runtime does not answer. Bounded: the policies that were published longest ago go first.
 */

import { type CorsPolicy, isUnder } from '../../protocol/http/problem.ts'
import { AgedMap } from '../aged-map.ts'

/** A policy and the path prefix that it is for, in whole segments. */
interface PathPolicy {
  readonly path: string
  readonly policy: CorsPolicy
}

interface Entry {
  readonly policies: readonly PathPolicy[]
  until: number
}

const MAX_RUNTIMES = 10_000

export class Policies {
  readonly #entries = new AgedMap<Entry>()
  readonly #fallback: CorsPolicy | undefined
  readonly #keepMs: number
  readonly #now: () => number

  constructor(fallback: CorsPolicy | undefined, keepMs: number, now: () => number) {
    this.#fallback = fallback
    this.#keepMs = keepMs
    this.#now = now
  }

  /** Replaces the policies of a runtime. An empty list removes them. */
  publish(runtime: string, policies: readonly PathPolicy[]): void {
    if (policies.length === 0) {
      this.#entries.delete(runtime)
      return
    }
    const longestFirst = [...policies].sort((a, b) => b.path.length - a.path.length)
    this.#entries.putWithin(MAX_RUNTIMES, runtime, { policies: longestFirst, until: this.#now() + this.#keepMs })
  }

  /** Call this when a session ends: policies are kept for a time from then on. */
  touch(runtime: string): void {
    const entry = this.#entries.get(runtime)
    if (entry !== undefined) entry.until = this.#now() + this.#keepMs
  }

  /** `online`: the runtime has a session, so its policy is valid however long ago it was published. */
  find(runtime: string | undefined, path: string, online: boolean): CorsPolicy | undefined {
    const entry = runtime === undefined ? undefined : this.#entries.get(runtime)
    if (entry === undefined) return this.#fallback
    if (!online && this.#now() > entry.until) {
      this.#entries.delete(runtime!)
      return this.#fallback
    }
    return entry.policies.find(one => isUnder(one.path, path))?.policy ?? this.#fallback
  }
}
