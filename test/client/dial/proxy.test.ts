import { describe, expect, it } from 'vitest'
import { chooseProxy, parseProxy } from '../../../client/dial/proxy.ts'

const SERVER = new URL('wss://connect.example.com')
const PROXY = 'http://proxy.corp:3128'

describe('parseProxy', () => {
  it('reads address, default ports and credentials', () => {
    expect(parseProxy('http://proxy.corp')).toMatchObject({ host: 'proxy.corp', port: 80, encrypted: false })
    expect(parseProxy('https://proxy.corp')).toMatchObject({ port: 443, encrypted: true })
    expect(parseProxy('proxy.corp:3128')).toMatchObject({ host: 'proxy.corp', port: 3128, authorization: undefined })
    expect(parseProxy('http://[::1]:3128')).toMatchObject({ host: '::1', port: 3128 })
    const { authorization } = parseProxy('http://us%40er:p%3Ass@proxy.corp:3128')
    expect(Buffer.from(authorization!.slice(6), 'base64').toString()).toBe('us@er:p:ss')
  })

  it('refuses what it cannot speak, without showing the password', () => {
    expect(() => parseProxy('socks5://u:secret@proxy.corp')).toThrow(
      new TypeError('the proxy has the scheme "socks5"; only http and https are supported'),
    )
    expect(() => parseProxy('http://u:secret@')).toThrow(
      new TypeError('the proxy is not a URL; write http://host:port'),
    )
    expect(() => parseProxy('http://u:sec%ret@proxy.corp')).toThrow(
      new TypeError('the user name or password of the proxy is not percent-encoded: write % as %25'),
    )
  })
})

describe('chooseProxy', () => {
  it('uses the environment, in upper or lower case', () => {
    expect(chooseProxy(SERVER, undefined, { HTTPS_PROXY: PROXY })?.host).toBe('proxy.corp')
    expect(chooseProxy(SERVER, undefined, { https_proxy: PROXY })?.host).toBe('proxy.corp')
    expect(chooseProxy(SERVER, undefined, {})).toBeUndefined()
    expect(chooseProxy(SERVER, undefined, { HTTPS_PROXY: '' })).toBeUndefined()
  })

  it('lets the option win, even over NO_PROXY, and an empty one means none', () => {
    expect(chooseProxy(SERVER, 'http://other:1', { HTTPS_PROXY: PROXY, NO_PROXY: '*' })?.host).toBe('other')
    expect(chooseProxy(SERVER, '', { HTTPS_PROXY: PROXY })).toBeUndefined()
  })

  it('never sends loopback to a proxy from the environment', () => {
    expect(chooseProxy(new URL('wss://127.0.0.1:8443'), undefined, { HTTPS_PROXY: PROXY })).toBeUndefined()
    expect(chooseProxy(new URL('wss://x.tunnels.localhost'), undefined, { HTTPS_PROXY: PROXY })).toBeUndefined()
  })

  it.each([
    ['*', true],
    ['example.com', true],
    ['.example.com', true],
    ['*.example.com', true],
    ['connect.example.com', true],
    ['CONNECT.EXAMPLE.COM', true],
    ['foo, connect.example.com:443', true],
    ['connect.example.com:8443', false],
    ['ample.com', false],
    ['notconnect.example.com', false],
    ['', false],
  ])('reads NO_PROXY=%s', (list, direct) => {
    const proxy = chooseProxy(SERVER, undefined, { HTTPS_PROXY: PROXY, NO_PROXY: list })
    expect(proxy === undefined).toBe(direct)
  })

  it.each([
    ['10.0.0.0/8', 'wss://10.1.2.3', true],
    ['10.0.0.0/8', 'wss://11.1.2.3', false],
    ['10.1.2.3', 'wss://10.1.2.3:9', true],
    ['fd00::/8', 'wss://[fd00::1]:8443', true],
    ['[fd00::1]:8443', 'wss://[fd00::1]:8443', true],
    ['10.0.0.0/99', 'wss://10.1.2.3', false],
    ['nonsense/8', 'wss://10.1.2.3', false],
  ])('reads NO_PROXY=%s for %s', (list, server, direct) => {
    const proxy = chooseProxy(new URL(server), undefined, { HTTPS_PROXY: PROXY, NO_PROXY: list })
    expect(proxy === undefined).toBe(direct)
  })
})
