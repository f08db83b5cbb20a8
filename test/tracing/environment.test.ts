import { expect, test } from 'vitest'
import { readOtelEnvironment } from '../../tracing/index.ts'

const read = (variables: Record<string, string>) =>
  readOtelEnvironment(Object.fromEntries(Object.entries(variables).map(([name, value]) => [`OTEL_${name}`, value])))

test('no variables are set', () => {
  expect(read({ EXPORTER_OTLP_ENDPOINT: '', SDK_DISABLED: ' ' })).toEqual({
    ...{ disabled: false, url: undefined, headers: {}, timeoutMs: undefined, resource: {}, sampler: undefined },
  })
})

test.each([
  [{ EXPORTER_OTLP_ENDPOINT: 'http://a:4318' }, { url: 'http://a:4318/v1/traces' }],
  [{ EXPORTER_OTLP_ENDPOINT: 'http://a/otlp/' }, { url: 'http://a/otlp/v1/traces' }],
  [{ EXPORTER_OTLP_ENDPOINT: 'http://a', EXPORTER_OTLP_TRACES_ENDPOINT: 'https://b/x' }, { url: 'https://b/x' }],
  [{ EXPORTER_OTLP_HEADERS: 'a=1, b=x%20y%3D ,' }, { headers: { a: '1', b: 'x y=' } }],
  [{ EXPORTER_OTLP_HEADERS: 'a=1', EXPORTER_OTLP_TRACES_HEADERS: 'b=2' }, { headers: { b: '2' } }],
  [{ EXPORTER_OTLP_TIMEOUT: '2500' }, { timeoutMs: 2500 }],
  [{ EXPORTER_OTLP_TIMEOUT: '2500', EXPORTER_OTLP_TRACES_TIMEOUT: '1' }, { timeoutMs: 1 }],
  [
    { RESOURCE_ATTRIBUTES: 'service.name=a,zone=b', SERVICE_NAME: 'edge' },
    { resource: { 'service.name': 'edge', zone: 'b' } },
  ],
  [{ SDK_DISABLED: 'TRUE' }, { disabled: true }],
  [{ TRACES_EXPORTER: 'none' }, { disabled: true }],
  [{ TRACES_SAMPLER: 'always_on' }, { sampler: { ratio: 1, parentBased: false } }],
  [{ TRACES_SAMPLER: 'parentbased_always_off' }, { sampler: { ratio: 0, parentBased: true } }],
  [{ TRACES_SAMPLER: 'traceidratio', TRACES_SAMPLER_ARG: '0.25' }, { sampler: { ratio: 0.25, parentBased: false } }],
  [{ TRACES_SAMPLER: 'parentbased_traceidratio' }, { sampler: { ratio: 1, parentBased: true } }],
  [{ EXPORTER_OTLP_PROTOCOL: 'http/protobuf' }, {}],
])('%j', (variables, expected) => {
  expect(read(variables)).toMatchObject(expected)
})

test.each([
  [{ EXPORTER_OTLP_ENDPOINT: 's3cret' }, 'OTEL_EXPORTER_OTLP_ENDPOINT must be a URL with http:// or https://'],
  [
    { EXPORTER_OTLP_TRACES_ENDPOINT: 'grpc://s3cret' },
    'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be a URL with http:// or https://',
  ],
  [
    { EXPORTER_OTLP_HEADERS: 's3cret' },
    'OTEL_EXPORTER_OTLP_HEADERS must be a list such as name=value,name=value, percent-encoded',
  ],
  [
    { EXPORTER_OTLP_HEADERS: 'a=%s3cret' },
    'OTEL_EXPORTER_OTLP_HEADERS must be a list such as name=value,name=value, percent-encoded',
  ],
  [{ EXPORTER_OTLP_TRACES_TIMEOUT: '5s' }, 'OTEL_EXPORTER_OTLP_TRACES_TIMEOUT must be a number of milliseconds'],
  [
    { TRACES_SAMPLER: 'toString' },
    'OTEL_TRACES_SAMPLER must be one of always_on, always_off, traceidratio, each also with the prefix parentbased_',
  ],
  [{ TRACES_SAMPLER: 'traceidratio', TRACES_SAMPLER_ARG: '2' }, 'OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1'],
  [{ EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'OTEL_EXPORTER_OTLP_PROTOCOL: gRPC is not supported, only HTTP'],
])('%j is refused, and its value is not shown', (variables, message) => {
  expect(() => read(variables)).toThrow(new TypeError(message))
})
