/** frp: type http, TLS forced, TCP multiplexing and a pool of connections, over TCP or over WebSocket with TLS. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { findProgram } from '../../../cli/demo/programs.ts'
import type { SetupMaker } from '../setup.ts'
import { peerSetup } from './peer.ts'

export const frp =
  (protocol: 'tcp' | 'websocket'): SetupMaker =>
  context => {
    const { secrets, upstreamPort } = context
    const config = async (end: string, text: string) => {
      const path = join(secrets.folder, `${end}-${protocol}-${context.via === undefined ? 'near' : 'far'}.toml`)
      await writeFile(path, text)
      return path
    }
    return peerSetup(context, {
      key: `frp-${protocol}`,
      name: protocol === 'tcp' ? 'frp (TCP, TLS)' : 'frp (WebSocket, TLS)',
      headers: { host: 'bench.localhost' },
      server: async ({ control, edge }) => {
        const path = await config(
          'frps',
          `bindAddr = "127.0.0.1"
bindPort = ${control}
proxyBindAddr = "127.0.0.1"
vhostHTTPPort = ${edge}
transport.tls.force = true
transport.tls.certFile = "${secrets.certificate}"
transport.tls.keyFile = "${secrets.key}"
transport.maxPoolCount = 50
log.level = "warn"
`,
        )
        return { command: findProgram('frps')!, args: ['-c', path] }
      },
      client: async ({ control }) => {
        const path = await config(
          'frpc',
          `serverAddr = "127.0.0.1"
serverPort = ${control}
transport.protocol = "${protocol}"
transport.tls.enable = true
transport.tls.trustedCaFile = "${secrets.ca}"
transport.tls.serverName = "localhost"
transport.poolCount = 50
log.level = "warn"
[[proxies]]
name = "bench"
type = "http"
localIP = "127.0.0.1"
localPort = ${upstreamPort}
customDomains = ["bench.localhost"]
`,
        )
        return { command: findProgram('frpc')!, args: ['-c', path] }
      },
    })
  }
