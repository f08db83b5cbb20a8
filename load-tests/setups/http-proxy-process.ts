/** One hop of `http-proxy` with a keep-alive agent, as its documentation recommends. Argument: the port of the upstream. */
import { Agent, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import httpProxy from 'http-proxy'

const proxy = httpProxy.createProxyServer({
  target: { host: '127.0.0.1', port: Number(process.argv[2]) },
  agent: new Agent({ keepAlive: true, maxSockets: Infinity }),
})
proxy.on('error', (_error, _request, response) => {
  if ('writeHead' in response && !response.headersSent) response.writeHead(502)
  response.end()
})
const server = createServer((request, response) => proxy.web(request, response))
server.on('upgrade', (request, socket, head) => proxy.ws(request, socket, head))
server.keepAliveTimeout = 0
server.requestTimeout = 0
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.stdout.write(`${(server.address() as AddressInfo).port}\n`)
})
