/**
 * docs/keys.md: each command line as written, in order, while a server and a client run and a caller sends requests.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { lastingPort } from '../support/ports.ts'
import { until } from '../support/until.ts'
import { useShell } from './shell.ts'

const SLOW = { tags: ['slow'] }
const page = readFileSync('docs/keys.md', 'utf8')
const shell = useShell()
const upstream = createServer((_request, response) => response.end('from inside\n')).listen(0, '127.0.0.1')
afterAll(() => {
  upstream.close()
})

/** The blocks of commands, including those in numbered lists, without fenced ones. */
const commands = [
  ...page.replaceAll(/^```[\s\S]*?^```$/gm, '').matchAll(/(?:^ {4,7}(?:sallyport|mv|rm|cat|cp) .*\n)+/gm),
].map(([block]) => block.replaceAll(/^ +/gm, ''))

test('callers are served while keys and certificates are replaced, and a revocation is taken back', SLOW, async () => {
  if (!upstream.listening) await once(upstream, 'listening')
  const [add, sign, retire, leaked, renew, trust, use, forget, undo, ...more] = commands as [string, ...string[]]
  expect([commands.length, more]).toEqual([9, []])
  const port = await lastingPort()
  await shell.run(
    `sallyport certs init --out certs --host tunnels.example.com '*.tunnels.example.com' connect.example.com
    sallyport keys create --out keys
    sallyport token create --key keys/private.jwk --runtime demo --out token
    touch revoked.json
    cat > server.yaml <<END
domain: tunnels.example.com
public: { listen: '127.0.0.1:${port}', tls: { cert: certs/server.pem, key: certs/server-key.pem } }
control: { host: connect.example.com }
auth: { jwks: { file: keys/jwks.json }, revocations: { file: revoked.json } }
END`,
  )
  const server = await shell.keep('sallyport server --config server.yaml', '"name":"control"')
  const target = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
  const client = await shell.keep(
    `sallyport client --server wss://connect.example.com:${port} --connect-to 127.0.0.1:${port} --ca certs/ca.pem ` +
      `--token.file token --target ${target}`,
    'this instance is active',
  )
  const name = 'demo.tunnels.example.com'
  const curl = `curl --silent --show-error --cacert certs/ca.pem --resolve ${name}:${port}:127.0.0.1 https://${name}:${port}/`
  const served = async () => expect(await shell.run(curl)).toBe('from inside\n')
  const times = (text: string, word: string) => text.split(word).length - 1

  await served()
  expect((await shell.run(add)).split('\n').filter(line => line.includes('Ed25519'))).toHaveLength(2)
  const [first, second] = JSON.parse(await shell.run('sallyport keys list --jwks keys/jwks.json --json')) as {
    kid: string
  }[]
  await until(() => server.said().includes('key set'))
  await shell.run(sign!)
  await until(
    () => client.said().includes('token renewed') || client.said().includes('fresh token'),
    'the client renews',
  )
  await served()
  await shell.run(retire!.replace('KID', first!.kid.slice(0, 8)))
  expect(JSON.parse(readFileSync(`${shell.folder}/keys/jwks.json`, 'utf8')).keys).toMatchObject([{ kid: second!.kid }])
  await expect(shell.run(`sallyport keys retire --jwks keys/jwks.json --kid ${second!.kid}`)).rejects.toThrow(
    'last key',
  )
  await served()

  const before = await shell.run('sallyport certs show certs/server.pem')
  const shown = await shell.run(renew!)
  expect(shown).toContain('names    DNS:tunnels.example.com, DNS:*.tunnels.example.com, DNS:connect.example.com')
  expect(shown.split('sha-256')[1]).not.toBe(before.split('sha-256')[1])
  await until(() => times(server.said(), 'certificate reloaded') >= 1)
  await served()
  await shell.run(trust!)
  const reloads = times(server.said(), 'certificate reloaded')
  await shell.run(use!)
  await until(() => times(server.said(), 'certificate reloaded') > reloads)
  const renewal = renew!.trim().split('\n')[1]!
  const renewed = async () => {
    const before = times(server.said(), 'certificate reloaded')
    await shell.run(renewal)
    await until(() => times(server.said(), 'certificate reloaded') > before)
  }
  await renewed()
  await shell.run(forget!)
  await served()
  await renewed()
  await served()

  const [revoke, list, remove] = undo!.trim().split('\n') as [string, string, string]
  for (const rule of [leaked!, revoke]) {
    const rules = () =>
      shell.run('sallyport revocations list --json').then(text => JSON.parse(text).revocations as { id: string }[])
    const lost = times(server.said(), 'session ended')
    await shell.run(rule)
    await until(() => times(server.said(), 'session ended') > lost)
    expect(await shell.run(list)).toContain('tokens')
    const [made] = await rules()
    expect(await shell.run(remove.replace('ID', made!.id.slice(0, 8)))).toContain('removed')
    expect(await rules()).toEqual([])
    // It was issued before: taking the revocation back lets it in again, and a new one is tried at once.
    await shell.run('sallyport token create --key keys/private.jwk --runtime demo --out token')
    await until(async () => (await shell.run(curl)) === 'from inside\n')
  }
})
