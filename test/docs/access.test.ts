/** Our commands in docs/access.md, as written, as processes: nobody without a token reaches the service. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { blocks, useShell } from './shell.ts'

const page = readFileSync('docs/access.md', 'utf8')
const [tokens, client] = blocks(page) as [string, string]
const shell = useShell()
const upstream = createServer((request, response) => response.end(`${request.headers.authorization}\n`)).listen(
  0,
  '127.0.0.1',
)
afterAll(() => {
  upstream.close()
})

test('a caller needs a token for the runtime, except for open paths', {
  tags: ['slow'],
  timeout: 120_000,
}, async () => {
  if (!upstream.listening) await once(upstream, 'listening')
  const port = await lastingPort()
  const [keys, server, token] = tokens.replaceAll(/ \\\n */g, ' ').split('\n') as [string, string, string]
  await shell.run(
    `sallyport certs init --out . --host '*.tunnels.example.com' connect.example.com
    ${keys}
    ${token}
    ${token.replace('--runtime demo', '--runtime other').replace('--out caller.token', '--out other.token')}
    sallyport keys create --out keys
    sallyport token create --key keys/private.jwk --runtime demo --out login.token
    cat > server.yaml <<END
domain: tunnels.example.com
public: { listen: '127.0.0.1:${port}', tls: { cert: server.pem, key: server-key.pem } }
control: { host: connect.example.com }
auth: { jwks: { file: keys/jwks.json } }
END`,
  )
  await shell.keep(server, '"name":"control"')
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  const dial = client
    .replace('connect.example.com', `connect.example.com:${port}`)
    .replace('http://127.0.0.1:4180', target)
  await shell.keep(`${dial} --connect-to 127.0.0.1:${port} --ca ca.pem`, 'this instance is active')
  const name = 'demo.tunnels.example.com'
  const curl = `curl --silent --cacert ca.pem --resolve ${name}:${port}:127.0.0.1 --write-out '%{http_code}'`
  const ask = (path: string, file?: string) => {
    const header = file === undefined ? '' : `--header "Authorization: Bearer $(cat ${file})"`
    return shell.run(`${curl} ${header} https://${name}:${port}${path}`)
  }
  expect(await ask('/', 'caller.token')).toBe('undefined\n200')
  for (const file of [undefined, 'other.token', 'login.token'])
    expect(await ask('/', file)).toMatch(/not-authenticated.*401$/)
  expect(await ask('/webhooks/github')).toBe('undefined\n200')
})

test('the rules for some runtimes are valid', async () => {
  const rules = /```yaml\n(# shop\.yaml\n.*?)```/s.exec(page)![1]!
  const said = await shell.run(
    `cat > shop.yaml <<'END'
${rules}END
    sallyport keys create --out shop && mv shop/jwks.json shop-callers.json
    sallyport config validate server --domain a.example --auth.jwks.file shop-callers.json --control.plaintext --access.files shop.yaml`,
  )
  expect(said).toMatch(/the configuration of the server is valid\n$/)
})
