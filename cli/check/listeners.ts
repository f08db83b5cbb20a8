import { createServer, type Server, type Socket } from 'node:net'
import { guardWith } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort } from '../../protocol/base/host-port.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { accepts } from '../accepts.ts'

/** Addresses by the setting that names them. */
export type AddressesBySetting = Readonly<Record<string, HostPort | undefined>>

export const NO_RIGHT =
  'Ports below 1024 need CAP_NET_BIND_SERVICE, or a socket unit of systemd that opens the port for the component.'

/** Checks that the component could listen on all addresses now. */
export async function probeListeners(addresses: AddressesBySetting): Promise<Probe[]> {
  const held: { readonly flag: string; readonly port: number; readonly server: Server }[] = []
  const probes: Probe[] = []
  for (const [flag, address] of Object.entries(addresses)) {
    if (address === undefined) continue
    const about = { code: 'listen', what: `--${flag} ${formatAddress(address)}`, expected: 'the address is free' }
    const failure = await listen(address)
    // Whoever may not listen on a port is not told that somebody else does.
    const found = failure === 'EACCES' && (await accepts(address)) ? 'EADDRINUSE' : failure
    const twin = held.find(({ port }) => port === address.port)
    if (typeof found !== 'string') {
      held.push({ flag, port: address.port, server: found })
      probes.push({ ...about, status: 'ok', found: 'free', hint: '' })
    } else if (found !== 'EADDRINUSE') {
      const hint = found === 'EACCES' ? NO_RIGHT : 'Give an address of this machine.'
      probes.push({ ...about, status: 'fail', found, hint })
    } else if (twin !== undefined) {
      probes.push({ ...about, status: 'fail', found: `--${twin.flag} has the same port`, hint: 'Give another port.' })
    } else {
      const right = failure === 'EACCES' ? ` ${NO_RIGHT}` : ''
      const hint = `If that is the component itself, all is well. Otherwise stop whatever is listening there.${right}`
      probes.push({ ...about, status: 'warn', found: 'something is already listening there', hint })
    }
  }
  for (const { server } of held) server.close()
  return probes
}

/** What listens there now, or the code of the error. */
function listen({ host, port }: HostPort): Promise<Server | string> {
  return new Promise(resolve => {
    const guard = guardWith(error => resolve((error as NodeJS.ErrnoException).code ?? String(error)))
    const called = guard((socket: Socket) => socket.destroy())
    const server = createServer(called)
    const failed = guard((error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    const listening = guard(() => resolve(server))
    server.once('error', failed)
    server.once('listening', listening)
    server.listen({ host, port, exclusive: true })
  })
}
