/**
 * An agent of undici that leaves nothing behind: connections that are being opened as it ends, end too, and not at their deadline. Each
 * has a signal of its own. A socket of Node's stays on the signal that it was given, so that one for all would keep every socket.
 */
import { Agent, buildConnector } from 'undici'

interface EndingAgentOptions extends Omit<Agent.Options, 'connect'> {
  readonly connect: buildConnector.BuildOptions
}

export interface EndingAgent {
  readonly agent: Agent
  end(): Promise<void>
}

export function endingAgent({ connect, ...options }: EndingAgentOptions): EndingAgent {
  const opening = new Set<AbortController>()
  const agent = new Agent({
    ...options,
    connect: (place, opened) => {
      const ending = new AbortController()
      opening.add(ending)
      const { signal } = ending
      buildConnector({ ...connect, signal })(place, (...outcome) => {
        opening.delete(ending)
        opened(...outcome)
      })
    },
  })
  return {
    agent,
    end: () => {
      for (const ending of opening) ending.abort()
      return agent.destroy()
    },
  }
}
