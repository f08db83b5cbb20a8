/** Takes uploads: answers the number of bytes once the whole body has come. Prints its port. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

const server = createServer((request, response) => {
  let bytes = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
  })
  request.on('end', () => response.end(String(bytes)))
})
server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port))
