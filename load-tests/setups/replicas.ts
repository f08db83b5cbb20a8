/** Two servers that share a Redis. The client is at one, and callers arrive at the other, so each request takes the hop. */

import { findProgram } from '../../cli/demo/programs.ts'
import { freePort, waitForPort } from '../lib/ports.ts'
import { start } from '../lib/processes.ts'
import { DOMAIN } from '../lib/secrets.ts'
import { PATHS } from '../upstream/service.ts'
import { waitForAnswer } from './ready.ts'
import { type SetupContext, type SetupMaker, type Stoppable, started, stopInTurn } from './setup.ts'
import { RUNTIME, startClient, startServer } from './tunnel.ts'

export const replicas: SetupMaker = async context => {
  const parts: Stoppable[] = []
  return started(parts, async () => {
    const redis = await startRedis()
    parts.push(redis)
    const flags = replicaFlags(context, redis.port)
    const [near, far] = [await startServer(context, false, flags), await startServer(context, false, flags)]
    parts.push(near, far)
    const client = await startClient(context, far)
    parts.push(client)
    const url = `http://${near.address('public')}`
    const headers = { host: `${RUNTIME}.${DOMAIN}` }
    await waitForAnswer({ url: url + PATHS.small, headers })
    const pids = [near.pid, far.pid, client.pid]
    return [
      {
        key: 'tunnel-replicas',
        name: 'tunnel, 2 replicas, the hop',
        url,
        headers,
        pids,
        stop: () => stopInTurn(parts),
      },
    ]
  })
}

function replicaFlags({ secrets }: SetupContext, redisPort: number): string[] {
  return [
    ...['--directory', `redis://127.0.0.1:${redisPort}`, '--peer.listen', '127.0.0.1:0', '--peer.tls.ca', secrets.ca],
    ...['--peer.tls.cert', secrets.replica.certificate, '--peer.tls.key', secrets.replica.key],
  ]
}

async function startRedis() {
  const program = findProgram('redis-server')
  if (program === undefined) throw new Error('no program redis-server')
  const port = await freePort()
  const args = ['--bind', '127.0.0.1', '--port', String(port), '--save', '', '--appendonly', 'no']
  return { ...(await start({ name: 'redis', command: program, args, ready: waitForPort(port) })), port }
}
