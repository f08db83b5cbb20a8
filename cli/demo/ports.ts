import { createServer } from 'node:net'

/** Picks a port instead of the usual one. */
export type PickPort = (usual: number) => Promise<number>

/** Any free port. */
export const otherPort: PickPort = async usual => (await tryPort(0)) ?? usual

/** The usual port if it is free, else any free port. */
export const usualPort: PickPort = async usual => {
  return (await tryPort(usual)) ?? otherPort(usual)
}

function tryPort(port: number): Promise<number | undefined> {
  return new Promise(resolve => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' ? address?.port : undefined))
    })
  })
}
