/** The commands of docs/hosts.md, as written, as processes: a caller reaches a runtime under its own host. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { until } from '../support/until.ts'
import { blocks, useShell } from './shell.ts'

const [server, token] = blocks(readFileSync('docs/hosts.md', 'utf8')) as [string, string]
const shell = useShell()
const upstream = createServer((_request, response) => response.end('from inside\n')).listen(0, '127.0.0.1')
afterAll(() => {
  upstream.close()
})

test('a caller reaches the runtime by its host, under a certificate from the folder; a second runtime is told', {
  tags: ['slow'],
  timeout: 120_000,
}, async () => {
  if (!upstream.listening) await once(upstream, 'listening')
  const port = await lastingPort()
  const { folder } = shell
  await shell.run(
    `sallyport certs init --out . --host '*.tunnels.example.com' tunnels.example.com
    sallyport certs server --ca . --out one --host hooks.customer.example
    mkdir certificates
    cp one/server.pem certificates/customer.crt
    cp one/server-key.pem certificates/customer.key
    sallyport keys create --out keys
    ${token}
    ${token.replace('--runtime demo', '--runtime rival').replace('--out token', '--out rival')}
    cat > server.yaml <<END
public: { listen: '127.0.0.1:${port}', tls: { cert: server.pem, key: server-key.pem } }
control: { host: tunnels.example.com }
auth: { jwks: { file: keys/jwks.json } }
END`,
  )
  const running = await shell.keep(server, '"name":"control"')
  const client = (file: string) =>
    `sallyport client --server wss://tunnels.example.com:${port} --connect-to 127.0.0.1:${port} --ca ca.pem --token.file ${file} ` +
    `--target http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  await shell.keep(client('token'), 'this instance is active')
  const curl =
    `curl --silent --show-error --fail --cacert ${join(folder, 'ca.pem')} ` +
    `--resolve hooks.customer.example:${port}:127.0.0.1 https://hooks.customer.example:${port}/`
  await until(() => running.said().includes('a host is served'))
  expect(await shell.run(curl)).toBe('from inside\n')
  await shell.keep(client('rival'), 'the host hooks.customer.example belongs to another runtime, which keeps it')
  await until(() => running.said().includes('"runtime":"rival","holder":"demo"'))
  expect(await shell.run(curl)).toBe('from inside\n')
})
