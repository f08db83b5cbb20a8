/** What the setups of other tunnels have in common: two processes, and a port where callers arrive. */
import { freePort, waitForPort } from '../../lib/ports.ts'
import { type Started, type StartOptions, start } from '../../lib/processes.ts'
import { PATHS } from '../../upstream/service.ts'
import { waitForAnswer } from '../ready.ts'
import { type Setup, type SetupContext, started, stopInTurn } from '../setup.ts'

export interface PeerSetup {
  readonly key: string
  readonly name: string
  readonly headers?: Readonly<Record<string, string>>
  /** The two ends, in the order in which they start. `control` is the port of the first, as the second reaches it. */
  readonly server: (ports: { control: number; edge: number }) => Promise<Command>
  readonly client: (ports: { control: number; edge: number }) => Promise<Command>
}

type Command = Pick<StartOptions, 'command' | 'args' | 'cwd' | 'env'>

export async function peerSetup(context: SetupContext, peer: PeerSetup): Promise<Setup[]> {
  const [control, edge] = [await freePort(), await freePort()]
  const parts: Started[] = []
  const begin = async (what: string, command: Command) => {
    const options = { ...command, name: `${peer.name}: ${what}`, ready: Promise.resolve() }
    parts.push(await start(options))
  }
  return started(parts, async () => {
    await begin('server', await peer.server({ control, edge }))
    await waitForPort(control)
    const dialled = context.via === undefined ? control : await context.via(control)
    await begin('client', await peer.client({ control: dialled, edge }))
    const url = `http://127.0.0.1:${edge}`
    const headers = peer.headers ?? {}
    await waitForAnswer({ url: `${url}${PATHS.small}`, headers }).catch(error => {
      throw new Error([error.message, ...parts.map(part => part.tail())].join('\n'))
    })
    const stop = () => stopInTurn(parts)
    return [{ key: peer.key, name: peer.name, url, headers, pids: parts.map(part => part.pid), stop }]
  })
}
