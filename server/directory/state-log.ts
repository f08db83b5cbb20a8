/** Logs each change of the directory's state once. */
import type { Logger } from '../../protocol/base/log.ts'
import type { DirectoryState } from './directory.ts'

type Said = DirectoryState | 'young' | 'forgetful'

const WORDS: Record<Said, string> = {
  connected: 'the directory is reachable',
  young: 'the directory is new, was emptied or lost writes; nothing is routed until it is as old as a lease',
  forgetful:
    'the directory was emptied or lost writes; what was last known stays in force, and no new instance becomes active until it is as old as a lease',
  presumed: 'the directory is not reachable; what was last known stays in force, and no new instance becomes active',
  lost: 'the directory is not reachable, nor are all other replicas; nothing is routed until one or the other is',
}

export class StateLog {
  readonly #logger: Logger
  #logged: Said | undefined

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** `isYoung`: the store answers, but may not know all sessions yet. `failure`: why there is no link. */
  say(state: DirectoryState, isYoung: boolean, replicas: number, failure: Error | undefined): void {
    const said = !isYoung || state === 'connected' ? state : state === 'lost' ? 'young' : 'forgetful'
    if (said === this.#logged) return
    this.#logged = said
    const level = said === 'lost' ? 'error' : said === 'presumed' || said === 'forgetful' ? 'warn' : 'info'
    const err = level === 'info' ? undefined : failure
    this.#logger[level]({ state, replicas, err }, WORDS[said])
  }
}
