import { askProxy, chooseProxy, type ProxyAnswer, parseProxy } from '../../../client/dial/proxy.ts'
import { FakeSocket } from '../fake-socket.ts'
import { holds, same } from '../holds.ts'
import { cut, mutate } from '../mutate.ts'
import { Random } from '../random.ts'
import type { FuzzTarget } from '../target.ts'

const LINES = [
  ...[
    'HTTP/1.1 200 Connection established',
    'HTTP/1.0 200',
    'HTTP/1.1 407 Auth',
    'HTTP/1.1 204 x',
    'HTTP/1.1 2000',
    'HTTP/2 200',
    'SSH-2.0',
  ],
  ...[
    'Proxy-Authenticate: Basic realm="x"',
    'Proxy-Authenticate:',
    'proxy-authenticate:Negotiate',
    'Via: 1.1 x',
    'X: \x80\0',
  ],
]

async function ask(pieces: readonly Buffer[]): Promise<ProxyAnswer | string> {
  const socket = new FakeSocket()
  const answers: (ProxyAnswer | string)[] = []
  askProxy(socket, 'server.test:443', 'Basic eA==', (error, answer) => answers.push(error?.message ?? answer))
  holds(socket.text.startsWith('CONNECT server.test:443 HTTP/1.1\r\n'), 'it asks')
  await socket.bring(pieces)
  socket.destroy()
  await new Promise(resolve => setImmediate(resolve))
  holds(answers.length === 1, 'one answer')
  return answers[0]!
}

/** A proxy's answer to CONNECT. The same bytes are also read as its address and as a list of exceptions. */
export const proxyAnswer: FuzzTarget = {
  name: 'proxy-answer',

  generate(random) {
    if (random.oneIn(3)) {
      const parts = [
        'http://',
        'https://',
        'u:p@',
        'proxy.test',
        ':3128',
        '[::1]',
        '10.0.0.0/8',
        ',',
        '*.test',
        '%zz',
        '/',
        '#',
        'ftp://',
      ]
      return Buffer.from(Array.from({ length: random.between(1, 6) }, () => random.pick(parts)).join(''))
    }
    const [first, ...rest] = Array.from({ length: random.between(1, 4) }, () => random.pick(LINES))
    const text = Buffer.from(
      `${[first, ...rest].join('\r\n')}\r\n${random.oneIn(40) ? 'x'.repeat(20_000) : ''}\r\n`,
      'latin1',
    )
    return random.oneIn(2) ? text : mutate(text, random, ['\r\n\r\n', ' ', '\n', '200'])
  },

  async execute(input) {
    checkAddress(input.toString('latin1'))
    const whole = await ask(input.length === 0 ? [] : [input])
    // Bytes after the head count only if they arrived with it, since nobody reads them as part of the answer.
    const end = input.indexOf('\r\n\r\n')
    if (end < 0 || end + 4 === input.length)
      same(await ask(cut(input, new Random(input))), whole, 'any cut is read alike')
    if (typeof whole !== 'string') holds(whole.status >= 0 && whole.status <= 999, 'a status')
  },
}

function checkAddress(text: string): void {
  try {
    const proxy = parseProxy(text)
    holds(proxy.port >= 0 && proxy.port <= 65_535, 'a port')
  } catch (error) {
    holds(error instanceof TypeError, `a bad address is a TypeError: ${error}`)
    const credentials = /\/\/([^/@]+)@/.exec(text)?.[1]
    if (credentials !== undefined && credentials.length > 3)
      holds(!error.message.includes(credentials), 'no credentials in messages')
  }
  const env = { HTTPS_PROXY: 'http://proxy.test:3128', NO_PROXY: text }
  for (const server of ['wss://server.test', 'wss://10.1.2.3', 'wss://[2001:db8::1]:8443'])
    chooseProxy(new URL(server), undefined, env)
}
