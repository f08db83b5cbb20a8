import { expect, test } from 'vitest'
import { Causes } from '../../client/causes.ts'
import { formatDuration } from '../../protocol/base/durations.ts'

test('a cause is logged at once, and once a minute while it lasts, whatever its times and ids', () => {
  const causes = new Causes()
  const isNews = Array.from({ length: 121 }, (_, second) =>
    causes.isNews(
      `refused (401, request 9066e9d5-${second}): your token expired ${formatDuration(second * 1000)} ago`,
      second * 1000,
    ),
  )
  expect(isNews.flatMap((news, second) => (news ? [second] : []))).toEqual([0, 60, 120])
})

test('another cause is news, and so is the same one after a session; of many causes the oldest is forgotten', () => {
  const causes = new Causes()
  expect([causes.isNews('a', 0), causes.isNews('b', 0), causes.isNews('a', 1)]).toEqual([true, true, false])
  causes.clear()
  expect(causes.isNews('a', 2)).toBe(true)
  const letters = Array.from({ length: 40 }, (_, n) => String.fromCharCode(0x4e00 + n))
  for (const letter of letters) causes.isNews(letter, 3)
  expect([causes.isNews('a', 4), causes.isNews(letters.at(-1)!, 4)]).toEqual([true, false])
})
