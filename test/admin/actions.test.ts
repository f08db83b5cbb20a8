import { once } from 'node:events'
import { request } from 'node:http'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type AdminListener, listenAdmin, listenHealth } from '../../admin/index.ts'

const TOKEN = 'a-token-of-this-test'
const JSON_OF_OPERATOR = {
  authorization: `Bearer ${TOKEN}`,
  'content-type': 'application/json',
  'x-sallyport-operator': 'ann@desk',
}

let admin: AdminListener
let health: AdminListener
let done: unknown[]
let audit: { fields: Record<string, unknown>; message: string }[]

beforeEach(async () => {
  done = []
  audit = []
  const source = {
    ready: () => true,
    status: () => ({}),
    metrics: async () => ({ contentType: 'text/plain', text: '' }),
    views: { '/sessions': () => ({ sessions: [] }), '/broken': () => Promise.reject(new Error('no luck')) },
    actions: {
      '/sessions/drain': (body: object) => {
        done.push(body)
        return { replicas: [] }
      },
      '/misused': () => {
        throw new TypeError('give a session')
      },
      '/broken': () => Promise.reject(new Error('no luck')),
    },
  }
  const warn = (fields: object, message: string) => void audit.push({ fields: { ...fields }, message })
  const logger = { debug() {}, info() {}, warn, error() {} }
  admin = await listenAdmin({ host: '127.0.0.1', port: 0, source, token: () => TOKEN, logger })
  health = await listenHealth({ host: '127.0.0.1', port: 0, source })
})
afterEach(() => Promise.all([admin.close(), health.close()]))

async function post(path: string, headers: Record<string, string>, body = '{}', listener = admin) {
  const { port } = listener.address
  const sent = request({ host: '127.0.0.1', port, path, method: 'POST', headers, agent: false }).end(body)
  const [response] = await once(sent, 'response')
  let text = ''
  for await (const chunk of response.setEncoding('utf8')) text += chunk
  return { status: response.statusCode as number, text }
}

describe('A3: an action', () => {
  test('by a bearer of the token is done and logged: who, what, from where', async () => {
    const answer = await post('/sessions/drain', JSON_OF_OPERATOR, '{"runtime":"demo"}')
    expect(answer).toEqual({ status: 200, text: '{"replicas":[]}\n' })
    expect(done).toEqual([{ runtime: 'demo' }])
    expect(audit).toEqual([
      {
        fields: {
          audit: true,
          action: '/sessions/drain',
          who: 'ann@desk',
          from: '127.0.0.1',
          body: { runtime: 'demo' },
          done: { replicas: [] },
        },
        message: 'audit: /sessions/drain',
      },
    ])
    expect(JSON.stringify(audit)).not.toContain(TOKEN)
  })

  const { authorization, ...unauthorized } = JSON_OF_OPERATOR
  test.each<[string, number, Record<string, string>]>([
    ['without the token', 401, unauthorized],
    ['with another token', 401, { ...unauthorized, authorization: 'Bearer another-token' }],
    ['from a page', 403, { ...JSON_OF_OPERATOR, origin: 'https://evil.example' }],
    ['as a form would send it', 415, { authorization, 'content-type': 'application/x-www-form-urlencoded' }],
    ['as a page may without a preflight', 415, { authorization, 'content-type': 'text/plain' }],
    ['without the token, for a rebound name', 403, { ...unauthorized, host: 'rebound.example' }],
  ])('%s is not done', async (_name, status, headers) => {
    expect((await post('/sessions/drain', headers)).status).toBe(status)
    expect(done).toEqual([])
  })

  test('is not available by GET, nor on the health listener', async () => {
    const sent = request({ port: admin.address.port, path: '/sessions/drain', headers: JSON_OF_OPERATOR }).end()
    const [response] = await once(sent, 'response')
    response.resume()
    expect(response.statusCode).toBe(404)
    expect((await post('/sessions/drain', JSON_OF_OPERATOR, '{}', health)).status).toBe(405)
    expect(done).toEqual([])
  })

  test.each(['[]', '7', 'null', '{', `{"x":"${'x'.repeat(20_000)}"}`])('with a body of %.20s gets 400', async body => {
    expect((await post('/sessions/drain', JSON_OF_OPERATOR, body)).status).toBe(400)
    expect(done).toEqual([])
  })

  test('gets 404 if unknown, 400 if misused, 500 if it failed; a failure is logged, too', async () => {
    expect((await post('/constructor', JSON_OF_OPERATOR)).status).toBe(404)
    expect(await post('/misused', JSON_OF_OPERATOR)).toEqual({ status: 400, text: 'give a session\n' })
    expect(await post('/broken', JSON_OF_OPERATOR)).toEqual({ status: 500, text: 'no luck\n' })
    expect(audit.map(({ message }) => message)).toEqual(['audit: /misused failed', 'audit: /broken failed'])
  })

  test('and a view that failed says why', async () => {
    const { port } = admin.address
    const answer = await fetch(`http://127.0.0.1:${port}/broken`, { headers: { authorization: `Bearer ${TOKEN}` } })
    expect([answer.status, await answer.text()]).toEqual([500, 'no luck\n'])
  })

  test('by an operator whose name would control a terminal is logged as by an unknown one', async () => {
    await post('/sessions/drain', { ...JSON_OF_OPERATOR, 'x-sallyport-operator': 'a\u00e9b' })
    expect(audit[0]!.fields.who).toBe('unknown')
  })
})
