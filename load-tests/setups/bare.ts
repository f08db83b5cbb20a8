/** Setups that are no real tunnels: the minimum cost in Node of a tunnel of this shape. See `bare/`. */
import { fileURLToPath } from 'node:url'
import { start } from '../lib/processes.ts'
import { type Setup, type SetupMaker, type Stoppable, started, stopInTurn } from './setup.ts'

/** One connection at a time, for bodies. */
export const barePipe = bare('pipe', 'bare pipe: ws over TLS, no HTTP')
/** Many connections, for small requests. */
export const bareMux = bare('mux', 'bare multiplexer: TLS, no HTTP')

function bare(program: 'pipe' | 'mux', name: string): SetupMaker {
  return ({ secrets, upstreamPort }) => {
    const parts: Stoppable[] = []
    return started(parts, async (): Promise<Setup[]> => {
      const server = await run(program, 'server', [secrets.certificate, secrets.key])
      parts.push(server)
      const [edge, tunnel] = server.line.split(' ')
      const client = await run(program, 'client', [tunnel!, secrets.ca, String(upstreamPort)])
      parts.push(client)
      return [
        {
          key: `bare-${program}`,
          name,
          url: `http://127.0.0.1:${edge}`,
          headers: {},
          pids: [server.pid, client.pid],
          stop: () => stopInTurn(parts),
        },
      ]
    })
  }
}

async function run(program: string, role: 'server' | 'client', args: readonly string[]) {
  let line = ''
  const part = await start({
    name: `bare ${program}'s ${role}`,
    command: process.execPath,
    args: [fileURLToPath(new URL(`../bare/${program}.ts`, import.meta.url)), role, ...args],
    ready: first => {
      line = first
      return true
    },
  })
  return { ...part, line }
}
