import { expect, test } from 'vitest'
import { urlTarget } from '../../../client/targets/url.ts'
import { noLogger } from '../../../protocol/base/log.ts'

test.each(['ftp://a', 'http://', 'http://a/path', 'a'])(
  '%s is no target, and the error says what is supported',
  url => {
    expect(() => urlTarget(url, noLogger)).toThrow(TypeError)
    expect(() => urlTarget(url, noLogger)).toThrow(/^target: \S/)
  },
)
