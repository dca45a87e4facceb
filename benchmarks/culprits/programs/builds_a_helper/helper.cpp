#include <tuple>
#include <map>
#include <string>
#include <functional>
#include <regex>
#include <vector>
template <int A, int B> struct G { static long v() { return G<A - 1, B>::v() ^ (G<A, B - 1>::v() + A * B); } };
template <int B> struct G<0, B> { static long v() { std::map<G<0, B>*, std::vector<int>> m; m[nullptr].push_back(B); return m.size(); } };
template <int A> struct G<A, 0> { static long v() { std::map<G<A, 0>*, std::vector<int>> m; m[nullptr].push_back(A); return m.size(); } };
extern "C" int answer() { static long (*volatile table)() = &G<80, 80>::v; return table ? 42 : 0; }
