/** Where Redis is: each way to get the URL wrong, with the expected form. */
import { describe, expect, test } from 'vitest'
import { readPlace } from '../../../server/directory/redis-url.ts'
import { startServer } from '../fixture.ts'

const HOSTS = 'must begin with redis:// or rediss://, and have HOST:PORT or several with commas'
const SCHEMES = 'redis://, rediss://, redis+sentinel:// or rediss+sentinel://'
const NAME = 'must end with the name that the Sentinels give: redis+sentinel://a,b/NAME'
const DATABASE = 'must end with the number of a database, or nothing'

describe('the URL of a directory', () => {
  test.each(['', 'http://a', 'redis:a'])('is not %j, which names no store', async url => {
    const reason = `directory.url must begin with ${SCHEMES}`
    await expect(startServer({ directory: { url } })).rejects.toThrow(new TypeError(reason))
  })

  test.each([
    ['redis://', HOSTS],
    ['redis://a,,b', HOSTS],
    ['redis://a b', HOSTS],
    ['redis://a:123456', HOSTS],
    ['redis://a:99999', HOSTS],
    ['redis://a?x=1', HOSTS],
    [`redis://${Array(33).fill('a').join(',')}`, HOSTS],
    ['redis+sentinel://a,b', NAME],
    ['redis+sentinel://a,b/', NAME],
    ['redis://a/main', DATABASE],
    ['redis://a/12345', DATABASE],
    ['redis://a/1/2', DATABASE],
    ['redis+sentinel://a/main/x', DATABASE],
  ])('is not %j', async (url, reason) => {
    expect(() => readPlace(url)).toThrow(new TypeError(reason))
    await expect(startServer({ directory: { url } })).rejects.toThrow(new TypeError(`directory.url ${reason}`))
  })

  test('is not one of Redis if there are credentials for Sentinels', async () => {
    const directory = { url: 'redis://a', sentinel: { user: 'u' } }
    const reason = 'directory.sentinel needs redis+sentinel://'
    await expect(startServer({ directory })).rejects.toThrow(new TypeError(reason))
  })

  test.each([
    ['redis://a', { tls: false, hosts: ['a:6379'], sentinel: undefined, database: 0 }],
    ['rediss://u:p@[::1]:1,b/7', { tls: true, hosts: ['[::1]:1', 'b:6379'], database: 7, credentials: 'u:p' }],
    ['redis+sentinel://a,b:1/main/3', { hosts: ['a:26379', 'b:1'], sentinel: 'main', database: 3 }],
  ])('may be %s', (url, place) => expect(readPlace(url)).toMatchObject(place))
})
