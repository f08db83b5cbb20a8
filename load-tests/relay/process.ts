/** A slow line before a port on loopback. Arguments: port, round trip in ms, bytes per second. Prints its port. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Link } from './link.ts'

const [port, roundTripMs, bytesPerSecond] = process.argv.slice(2).map(Number) as [number, number, number]
const line = { delayMs: roundTripMs / 2, bytesPerSecond, queueMs: 100 }
const [up, down] = [new Link(line), new Link(line)]
/** A receiver that is slower than the line holds up only its own connection. */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024

const server = createServer({ allowHalfOpen: true, noDelay: true }, near => {
  const far = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
  cross(near, far, up)
  cross(far, near, down)
})

function cross(from: Socket, to: Socket, link: Link): void {
  from.on('data', chunk => {
    link.send(chunk.length, from, () => {
      if (to.destroyed) return
      to.write(chunk)
      if (to.writableLength < MAX_UNSENT_BYTES) return
      from.pause()
      to.once('drain', () => from.resume())
    })
  })
  from.on('end', () => link.send(0, from, () => to.end()))
  from.on('error', () => {})
  from.on('close', hadError => {
    if (hadError) link.send(0, from, () => to.destroy())
  })
}

server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`)
})
