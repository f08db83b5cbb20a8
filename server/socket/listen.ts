/** Listening on TCP as a promise. */
import type { AddressInfo, Server } from 'node:net'
import type { Logger } from '../../protocol/log.ts'

/** Resolves to the address once `server` listens; rejects with the system's error. Later errors are logged. */
export async function listenOn(
  server: Server,
  host: string,
  port: number,
  logger: Logger,
): Promise<{ host: string; port: number }> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => {
      server.off('error', reject)
      server.on('error', error => logger.error({ err: error }, 'a listener failed'))
      resolve()
    })
  })
  const address = server.address() as AddressInfo
  return { host: address.address, port: address.port }
}
