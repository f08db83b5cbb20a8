/** Not a tunnel: what one of this shape costs in Node at the least; see bare/pipe.ts. */
import { fileURLToPath } from 'node:url'
import { start } from '../lib/processes.ts'
import { type Road, type RoadMaker, type Stoppable, started, stopInTurn } from './road.ts'

export const barePipe: RoadMaker = async ({ secrets, upstreamPort }) => {
  const parts: Stoppable[] = []
  return started(parts, async (): Promise<Road[]> => {
    const server = await run('server', [secrets.certificate, secrets.key])
    parts.push(server)
    const [edge, tunnel] = server.line.split(' ')
    const client = await run('client', [tunnel!, secrets.ca, String(upstreamPort)])
    parts.push(client)
    return [
      {
        key: 'bare-pipe',
        name: 'bare pipe: ws over TLS, no HTTP',
        url: `http://127.0.0.1:${edge}`,
        headers: {},
        pids: [server.pid, client.pid],
        stop: () => stopInTurn(parts),
      },
    ]
  })
}

async function run(role: 'server' | 'client', args: readonly string[]) {
  let line = ''
  const part = await start({
    name: `bare pipe's ${role}`,
    command: process.execPath,
    args: [fileURLToPath(new URL('../bare/pipe.ts', import.meta.url)), role, ...args],
    ready: first => {
      line = first
      return true
    },
  })
  return { ...part, line }
}
