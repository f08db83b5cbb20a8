import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { decodeJwt } from 'jose'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BIN = join(ROOT, 'bin/sallyport.js')
const run = promisify(execFile)

interface Call {
  method: string | undefined
  url: string | undefined
  authorization: string | undefined
  type: string | undefined
  body: { data: { token: string } }
}

async function read(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += chunk
  return text
}

describe('deploy/kubernetes/client/renew-token.mjs', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-renew-'))
  const calls: Call[] = []
  let statuses: number[] = []
  const api = createServer(async (request, response) => {
    const { method, url, headers } = request
    const body = JSON.parse(await read(request))
    calls.push({ method, url, authorization: headers.authorization, type: headers['content-type'], body })
    response.writeHead(statuses.shift() ?? 200).end('{}')
  })

  beforeAll(async () => {
    await run(process.execPath, [BIN, 'keys', 'create', '--out', join(folder, 'keys')])
    writeFileSync(join(folder, 'token'), 'account-token\n')
    api.listen(0, '127.0.0.1')
    await once(api, 'listening')
  })

  afterAll(() => {
    api.close()
    rmSync(folder, { recursive: true })
  })

  const renew = (answers: number[], more: Record<string, string | undefined> = {}) => {
    calls.length = 0
    statuses = answers
    return run(process.execPath, [join(ROOT, 'deploy/kubernetes/client/renew-token.mjs')], {
      env: {
        ...process.env,
        ...{
          SALLYPORT_BIN: BIN,
          KEY_FILE: join(folder, 'keys/private.jwk'),
          ACCOUNT_DIR: folder,
          NAMESPACE: 'sallyport',
        },
        ...{
          RUNTIME: 'demo',
          TTL: '1h',
          AUDIENCE: 'sallyport',
          API: `http://127.0.0.1:${(api.address() as AddressInfo).port}`,
        },
        ...more,
      },
    })
  }

  it('patches the Secret with a token for the runtime, and prints no token', async () => {
    const { stdout, stderr } = await renew([200])
    expect(calls.map(call => [call.method, call.url, call.type, call.authorization])).toEqual([
      [
        'PATCH',
        '/api/v1/namespaces/sallyport/secrets/sallyport-token',
        'application/merge-patch+json',
        'Bearer account-token',
      ],
    ])
    const token = Buffer.from(calls[0]!.body.data.token, 'base64').toString()
    expect(decodeJwt(token)).toMatchObject({ sub: 'demo', aud: 'sallyport' })
    expect(stdout + stderr).not.toContain(token)
  })

  it('passes further flags on', async () => {
    await renew([200], { FLAGS: ' --host hooks.customer.example  --issuer=me' })
    const token = Buffer.from(calls[0]!.body.data.token, 'base64').toString()
    expect(decodeJwt(token)).toMatchObject({ iss: 'me', sallyport_hosts: ['hooks.customer.example'] })
  })

  it('creates no missing Secret, since the right to create one is the right to create any', async () => {
    await expect(renew([404])).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('apply token.yaml') })
    expect(calls.map(call => call.method)).toEqual(['PATCH'])
  })

  it('fails with the status if the API refuses', async () => {
    await expect(renew([403])).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('answered 403') })
  })

  it('finds an API with an IPv6 address', async () => {
    const cluster = { API: undefined, KUBERNETES_SERVICE_HOST: '::1', KUBERNETES_SERVICE_PORT_HTTPS: '9' }
    await expect(renew([], cluster)).rejects.toMatchObject({ stderr: expect.not.stringContaining('Invalid URL') })
  })
})
