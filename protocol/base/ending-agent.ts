/**
 * An undici agent that leaves nothing behind: when it ends, connections that are being opened end at once, not only at their
 * deadline. Each connection has its own abort signal, because a Node socket stays registered with the signal it was given, and
 * a shared signal would keep every socket in memory.
 *
 * It speaks HTTP/1.1, where a request that is given up ends its connection. An HTTP/2 connection whose path is silent would get the
 * next request, too, and while it is being opened, all requests would wait for it.
 *
 * It verifies certificates, whatever `NODE_TLS_REJECT_UNAUTHORIZED` says.
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
    allowH2: false,
    connect: (place, opened) => {
      const ending = new AbortController()
      opening.add(ending)
      const { signal } = ending
      buildConnector({ ...connect, rejectUnauthorized: true, allowH2: false, signal })(place, (...outcome) => {
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
