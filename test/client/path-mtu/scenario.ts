/**
 * Diagnoses a server in its own network namespace, over a path with this MTU that may lose large packets without a word.
 * Prints the probes as JSON.
 *
 *     unshare --net node test/client/path-mtu/scenario.ts MTU none|to|from [proxy]
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { diagnose } from '../../../client/index.ts'
import { program } from '../../support/needs.ts'
import { startPair } from '../../support/pair.ts'

/** Above the packets of the TLS handshake. */
const LARGE_BYTES = 4000
const [mtu, lost, via] = process.argv.slice(2) as [string, string, string | undefined]
const ip = program('ip')
const iptables = program('iptables')

execFileSync(ip, ['link', 'set', 'lo', 'mtu', mtu, 'up'])
const { server, secrets, stop } = await startPair({ target: () => new Response('fine') })
const port = server.controlAddress!.port
if (lost !== 'none') {
  const end = [lost === 'to' ? '--dport' : '--sport', String(port)]
  const large = ['-m', 'length', '--length', `${LARGE_BYTES}:`]
  execFileSync(iptables, ['-A', 'INPUT', '-p', 'tcp', ...end, ...large, '-j', 'DROP'])
}
// Where it looks for ss.
process.env.PATH = process.env.CHECK_PATH
const options = { url: `wss://127.0.0.1:${port}`, token: () => secrets.token('demo'), ca: secrets.ca }
const proxyServer = createServer().on('connect', (_request, near) => {
  const far = connect(port, '127.0.0.1', () => near.write('HTTP/1.1 200 OK\r\n\r\n'))
  for (const socket of [near, far]) socket.on('error', () => {})
  far.pipe(near).pipe(far)
})
await once(proxyServer.listen(0, '127.0.0.1'), 'listening')
const proxy = via === 'proxy' ? `http://127.0.0.1:${(proxyServer.address() as AddressInfo).port}` : ''
const probes = await diagnose({ ...options, proxy, target: 'http://127.0.0.1:1' }, { deep: true })
process.stdout.write(JSON.stringify(probes))
await stop()
proxyServer.close()
