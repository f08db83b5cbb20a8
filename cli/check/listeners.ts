import { createServer } from 'node:net'
import { guardWith } from '../../protocol/base/guard.ts'
import { formatAddress, type HostPort } from '../../protocol/base/host-port.ts'
import type { Probe } from '../../protocol/base/probe.ts'

/** Addresses by the setting that names them. */
export type AddressesBySetting = Readonly<Record<string, HostPort | undefined>>

/** Checks that the component could listen on each address now. */
export async function probeListeners(addresses: AddressesBySetting): Promise<Probe[]> {
  const named = Object.entries(addresses).filter((entry): entry is [string, HostPort] => entry[1] !== undefined)
  return await Promise.all(
    named.map(async ([flag, address]) => {
      const code = await listenOnce(address)
      const about = { code: 'listen', what: `--${flag} ${formatAddress(address)}`, expected: 'the address is free' }
      if (code === undefined) return { ...about, status: 'ok' as const, found: 'free', hint: '' }
      if (code === 'EADDRINUSE') {
        const hint = 'If that is the component itself, all is well. Otherwise stop whatever is listening there.'
        return { ...about, status: 'warn' as const, found: 'something is already listening there', hint }
      }
      const hint =
        code === 'EACCES' ? 'Ports below 1024 need CAP_NET_BIND_SERVICE.' : 'Give an address of this machine.'
      return { ...about, status: 'fail' as const, found: code, hint }
    }),
  )
}

/** Undefined if listening worked, else the code of the error. */
function listenOnce({ host, port }: HostPort): Promise<string | undefined> {
  return new Promise(resolve => {
    const server = createServer()
    const guard = guardWith(error => resolve((error as NodeJS.ErrnoException).code ?? String(error)))
    const failed = guard((error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    const listening = guard(() => {
      server.close()
      resolve(undefined)
    })
    server.once('error', failed)
    server.once('listening', listening)
    server.listen({ host, port, exclusive: true })
  })
}
