// IQ4_XS as bytes for sums of products with bytes: IQ4_NL with d * sc for its d.
#import dots_iq4_nl
